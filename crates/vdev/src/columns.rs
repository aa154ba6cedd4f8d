//! How one block lies in columns over the children of a raidz or draid.

/// One column of one row: a range of a child.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Col {
    /// Number of the child.
    pub(crate) child: usize,
    /// Where the column begins on the child.
    pub(crate) offset: u64,
    /// Bytes; 0 for a column that this block doesn't reach, which counts as zeros in the parity.
    pub(crate) size: usize,
    /// Where a data column's bytes are in the block.
    pub(crate) at: usize,
}

/// A block's rows. All rows have the same number of columns, parity first.
///
/// Each row's parity covers that row alone. A column that is shorter than the parity counts as
/// followed by zeros.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Map {
    /// Parity columns in each row.
    pub(crate) nparity: usize,
    /// Columns in each row.
    pub(crate) width: usize,
    /// All rows' columns.
    pub(crate) cols: Vec<Col>,
}

impl Map {
    /// The rows, each with its parity columns first.
    pub(crate) fn rows(&self) -> impl Iterator<Item = &[Col]> {
        self.cols.chunks(self.width)
    }

    /// Whether the column of this number, counted over all rows, is parity.
    pub(crate) fn is_parity(&self, index: usize) -> bool {
        index % self.width < self.nparity
    }
}
