//! How documents are told apart in the input and in the output, and what has to be done to a document on the way. Pure.
//!
//! Some formats have an index beside the tokens. In the others a token stands between documents: behind each, or, in
//! llm.c's files, before each. Tokens are kept as they are, as far as the output can say the same with them: a mark moves
//! to the other end of its document, and is added where nothing else would end one.

use super::refused;
use crate::says::FORMAT;
use lowtide::convert::Loss;
use lowtide::door::{END_OF_TEXT, LOSSY, Words};
use lowtide::format::Dialect;
use lowtide::{Error, Result};

/// At which end of a document a mark is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    Front,
    Back,
}

impl Side {
    fn of(dialect: Dialect) -> Self {
        if dialect.marks_beginnings() { Self::Front } else { Self::Back }
    }
}

/// What says where documents end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ends {
    /// An index.
    Index,
    /// A token at this end of each.
    Mark(i64, Side),
    /// Nothing.
    Unknown,
}

/// What is done to every document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Edit {
    /// Nothing.
    Keep,
    /// A mark that is at this end is put at the other.
    Move { id: i64, from: Side },
    /// The same, and where there is none, one is put there all the same: `to` that end.
    Put { id: i64, from: Side, to: Side },
}

impl Edit {
    /// Which token, and at which end, is left out where it is there.
    pub fn leaves_out(self) -> Option<(i64, Side)> {
        match self {
            Self::Keep => None,
            Self::Move { id, from } | Self::Put { id, from, .. } => Some((id, from)),
        }
    }

    /// What is put before a document, which had its mark or not.
    pub fn before(self, had: bool) -> Option<i64> {
        self.put(Side::Front, had)
    }

    /// What is put behind it.
    pub fn behind(self, had: bool) -> Option<i64> {
        self.put(Side::Back, had)
    }

    fn put(self, at: Side, had: bool) -> Option<i64> {
        match self {
            Self::Move { id, from } if from != at && had => Some(id),
            Self::Put { id, to, .. } if to == at => Some(id),
            _ => None,
        }
    }
}

/// How the output says where documents end.
pub fn has_index(dialect: Dialect) -> bool {
    matches!(dialect, Dialect::Megatron | Dialect::Datatrove)
}

/// What is done about documents: what the input has, as far as it is used, and what happens to each.
///
/// # Errors
/// [`Error::Argument`] where documents would be lost, or made up, and nobody said so.
pub fn plan(ends: Ends, end_of_text: Option<i64>, output: Dialect, loss: Loss) -> Result<(Ends, Edit)> {
    let to = Side::of(output);
    let format = || FORMAT.is(output.name());
    match (ends, end_of_text) {
        (Ends::Unknown, _) if has_index(output) && loss == Loss::Refused => Err(Error::argument(
            Words::from("nothing says where documents end, and ") + format() + " has an index of them",
            Words::from("give ")
                + END_OF_TEXT
                + ", the token between documents (50256 for GPT-2); with "
                + LOSSY.on()
                + " all of it is one document",
        )),
        (Ends::Index, _) if has_index(output) => Ok((ends, Edit::Keep)),
        (Ends::Index, Some(id)) => Ok((ends, Edit::Put { id, from: Side::Back, to })),
        (Ends::Index, None) if loss == Loss::Refused => Err(refused(
            Words::from("where documents end would be lost: ") + format() + " has no index of them",
            Words::from("give ") + END_OF_TEXT + ", the token that is to stand between them; ",
        )),
        (Ends::Unknown, _) | (Ends::Index, None) => Ok((Ends::Unknown, Edit::Keep)),
        (Ends::Mark(id, from), _) if has_index(output) && from == Side::Front => {
            Ok((ends, Edit::Move { id, from }))
        }
        (Ends::Mark(id, from), _) if !has_index(output) && from != to => {
            Ok((ends, Edit::Put { id, from, to }))
        }
        (Ends::Mark(..), _) => Ok((ends, Edit::Keep)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Dialect::{Datatrove, LlmC, Megatron, NanoGpt, Npy};
    use Side::{Back, Front};

    #[test]
    fn marks_are_where_the_output_wants_them() {
        let plan = |ends, id, output| plan(ends, id, output, Loss::Refused).unwrap();
        for indexed in [Megatron, Datatrove] {
            assert_eq!(plan(Ends::Index, None, indexed), (Ends::Index, Edit::Keep));
            assert_eq!(plan(Ends::Mark(9, Back), Some(9), indexed).1, Edit::Keep);
            assert_eq!(plan(Ends::Mark(9, Front), Some(9), indexed).1, Edit::Move { id: 9, from: Front });
        }
        for (output, to) in [(NanoGpt, Back), (Npy, Back), (LlmC, Front)] {
            assert_eq!(plan(Ends::Unknown, None, output), (Ends::Unknown, Edit::Keep));
            assert_eq!(plan(Ends::Index, Some(9), output).1, Edit::Put { id: 9, from: Back, to });
            assert_eq!(plan(Ends::Mark(9, to), Some(9), output).1, Edit::Keep);
            let from = if to == Front { Back } else { Front };
            assert_eq!(plan(Ends::Mark(9, from), Some(9), output).1, Edit::Put { id: 9, from, to });
        }
    }

    #[test]
    fn what_would_be_lost_or_made_up_is_refused() {
        let says = |ends, output| plan(ends, None, output, Loss::Refused).unwrap_err().to_string();
        assert_eq!(
            says(Ends::Index, LlmC),
            "where documents end would be lost: format=\"llmc\" has no index of them\n\
             hint: give end_of_text=, the token that is to stand between them; lossy=True converts all the same"
        );
        assert!(says(Ends::Unknown, Megatron).starts_with("nothing says where documents end, and format="));
        assert_eq!(plan(Ends::Index, None, LlmC, Loss::Allowed).unwrap(), (Ends::Unknown, Edit::Keep));
        assert_eq!(plan(Ends::Unknown, None, Megatron, Loss::Allowed).unwrap(), (Ends::Unknown, Edit::Keep));
    }

    #[test]
    fn a_mark_moves_or_is_put() {
        let edit = Edit::Move { id: 9, from: Front };
        assert_eq!((edit.behind(true), edit.behind(false), edit.before(true)), (Some(9), None, None));
        let edit = Edit::Put { id: 9, from: Back, to: Front };
        assert_eq!((edit.before(true), edit.before(false), edit.behind(true)), (Some(9), Some(9), None));
    }
}
