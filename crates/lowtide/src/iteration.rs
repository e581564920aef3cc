//! Where one iteration ends and the next one begins: the same for windows of tokens and for rows of arrays.
//!
//! Epochs come in, epochs go out; nothing here reads anything.

/// What another iteration gives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Again {
    /// The epochs after the last one. An iteration that was left half way is taken up where it was left.
    #[default]
    NextEpoch,
    /// The same epochs from their beginning, also after an iteration that was left half way: for validation.
    SameEpoch,
}

/// How an iteration stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Nothing was taken since it was made or loaded: an iteration begins here.
    Ready,
    /// Something was taken, and there is more.
    UnderWay,
    /// The last one was handed out: there is nothing more before another iteration begins.
    Over,
}

impl Standing {
    const ALL: [Self; 3] = [Self::Ready, Self::UnderWay, Self::Over];

    /// The word for it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::UnderWay => "under way",
            Self::Over => "over",
        }
    }

    /// The one that a word means.
    pub fn named(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|standing| standing.name() == word)
    }
}

/// Which epochs belong to one iteration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    /// The epoch with which the first iteration begins.
    pub(crate) first: u64,
    /// How many there are; `None` is endless.
    pub(crate) epochs: Option<u64>,
    pub(crate) again: Again,
}

impl Span {
    /// Whether an iteration ends with `epoch`. That depends on its number alone, so that an iteration that is
    /// taken up again ends where it would have ended.
    pub(crate) fn ends_with(self, epoch: u64) -> bool {
        let behind = i128::from(epoch) + 1 - i128::from(self.first);
        self.epochs.is_some_and(|epochs| behind.rem_euclid(i128::from(epochs.max(1))) == 0)
    }

    /// How many epochs an iteration that stands in `epoch` has from there on, this one included.
    pub(crate) fn left(self, epoch: u64) -> u64 {
        let Some(epochs) = self.epochs else { return u64::MAX };
        let behind = i128::from(epoch) - i128::from(self.first);
        let done = behind.rem_euclid(i128::from(epochs.max(1)));
        u64::try_from(i128::from(epochs.max(1)) - done).unwrap_or(u64::MAX)
    }

    /// The epoch that is gone through after `epoch`.
    pub(crate) fn after(self, epoch: u64) -> u64 {
        match self.again {
            Again::SameEpoch if self.ends_with(epoch) => self.first,
            _ => epoch.wrapping_add(1),
        }
    }

    /// Whether an iteration that stands like this is gone on with by the next one, or another one begins.
    pub(crate) fn goes_on(self, standing: Standing) -> bool {
        match standing {
            Standing::Ready => true,
            Standing::UnderWay => self.again == Again::NextEpoch,
            Standing::Over => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Following the epochs one by one, iterations have `epochs` of them each, from the first epoch on.
        #[test]
        fn iterations_lie_end_to_end(first in any::<u32>(), epochs in 1_u64..7) {
            let span = |again| Span { first: first.into(), epochs: Some(epochs), again };
            let (mut next, mut same) = (u64::from(first), u64::from(first));
            for step in 0..epochs * 3 {
                prop_assert_eq!(next, u64::from(first) + step);
                prop_assert_eq!(same, u64::from(first) + step % epochs);
                prop_assert_eq!(span(Again::NextEpoch).ends_with(next), step % epochs == epochs - 1);
                prop_assert_eq!(span(Again::SameEpoch).left(same), epochs - step % epochs);
                (next, same) = (span(Again::NextEpoch).after(next), span(Again::SameEpoch).after(same));
            }
        }
    }

    #[test]
    fn the_ends_of_numbers() {
        let one = Span { first: 0, epochs: Some(1), again: Again::NextEpoch };
        assert!(one.ends_with(u64::MAX));
        assert_eq!(one.after(u64::MAX), 0, "epochs wrap");
        let late = Span { first: u64::MAX, epochs: Some(u64::MAX), again: Again::NextEpoch };
        assert!(!late.ends_with(u64::MAX));
        assert!(late.ends_with(u64::MAX - 1), "a state of an earlier epoch is in an iteration too");
        let endless = Span { first: 3, epochs: None, again: Again::SameEpoch };
        assert!(!endless.ends_with(2) && !endless.ends_with(3));
        assert_eq!(endless.after(9), 10);
    }

    #[test]
    fn words() {
        for standing in Standing::ALL {
            assert_eq!(Standing::named(standing.name()), Some(standing));
        }
        assert_eq!(Standing::named("gone"), None);
    }
}
