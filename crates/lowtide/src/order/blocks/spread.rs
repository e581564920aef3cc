//! How far a block shuffle is from a perfect one, foretold.

use super::{Blocks, Piece};
use crate::order::Order;

/// Mixes looked at. They differ only in how the batches lie in them, which a thousand show well enough.
const LOOKED_AT: u64 = 1_024;

impl Blocks {
    /// How much more the classes' shares in a batch vary than after a perfect shuffle, where the file is
    /// sorted by class: the ratio of the standard deviations. 1.0 is perfect.
    ///
    /// It holds for anything that is the same throughout a block and unrelated between blocks, be it
    /// a label, a source or a date. Data that are less sorted than that are mixed better than foretold.
    ///
    /// A batch is `batch` positions from a multiple of `batch` on. Roughly, its variance grows by
    /// (`batch` − 1) / (blocks in a mix). Exactly, and that matters where a mix is much of the data or a
    /// batch much of a mix, it is cluster sampling without replacement. With N rows, of which a share p is of
    /// some class, let x be the number of that class in a batch of n, and write covariances in units
    /// of p(1 − p), the variance of one row:
    ///
    /// - two rows of one block have covariance 1;
    /// - two rows of different blocks have −κ, because a block that was drawn is not drawn again. All pairs of
    ///   rows of the file together have −1/(N − 1), so κ = (1/(N − 1) + σ) / (1 − σ), where σ is the share of
    ///   pairs that are of one block;
    /// - two rows of one mix are of one block with probability ρ, the share of pairs of *that mix's*
    ///   rows that are; two rows of different mixes never are.
    ///
    /// So Var(x) / p(1 − p) = n + Σ nᵢ(nᵢ − 1) ρᵢ (1 + κ) − n(n − 1) κ, where nᵢ rows of the batch lie in
    /// mix i; here it is averaged over the full batches of the epoch. A perfect shuffle has n (N − n) / (N − 1).
    /// One mix of everything is a perfect shuffle, and the formula says so.
    pub fn predicted_spread(&self, batch: u64) -> f64 {
        let batch = batch.clamp(1, self.len().max(1));
        // One mix is perfect. So is a batch of everything, which cannot vary: 0 / 0 below.
        if self.mixes == 1 || batch == self.len() {
            return 1.0;
        }
        let rows = self.len() as f64;
        let others = rows - 1.0;
        let same_block = (self.shuffled.len() as f64 * pairs(self.mix.block_rows.get())
            + self.pairs_of_rest())
            / pairs(self.len());
        let kappa = (1.0 / others + same_block) / (1.0 - same_block);

        let batched = self.len() - self.len() % batch;
        let (mut excess, mut seen) = (0.0, 0);
        for piece in (0..self.mixes.min(LOOKED_AT)).map(|number| self.piece(number)) {
            let positions = piece.positions.start.min(batched)..piece.positions.end.min(batched);
            seen = positions.end;
            excess += self.same_block(&piece) * pairs_in_batches(positions.start, positions.end, batch);
        }
        let variance = 1.0 + excess / seen as f64 * (1.0 + kappa) - (batch - 1) as f64 * kappa;
        let perfect = (self.len() - batch) as f64 / others;
        // Rounding may take what is nearly 0 below it.
        (variance / perfect).max(0.0).sqrt()
    }

    /// The share of a mix's pairs of rows that are of one block.
    fn same_block(&self, piece: &Piece) -> f64 {
        let rest = if piece.number == self.takes_rest { self.pairs_of_rest() } else { 0.0 };
        let blocks = (piece.blocks.end - piece.blocks.start) as f64;
        (blocks * pairs(self.mix.block_rows.get()) + rest) / pairs(piece.rows()).max(1.0)
    }

    /// The head and the tail are two more blocks, if short ones.
    fn pairs_of_rest(&self) -> f64 {
        pairs(self.head) + pairs(self.tail)
    }
}

/// Ordered pairs of different rows among `rows`.
fn pairs(rows: u64) -> f64 {
    rows as f64 * rows.saturating_sub(1) as f64
}

/// Pairs of positions `start..end` that lie in one batch.
fn pairs_in_batches(start: u64, end: u64, batch: u64) -> f64 {
    let first = start.next_multiple_of(batch).min(end) - start;
    let whole = (end - start - first) / batch;
    let last = (end - start - first) % batch;
    pairs(first) + whole as f64 * pairs(batch) + pairs(last)
}

#[cfg(test)]
mod tests;
