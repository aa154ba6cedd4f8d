//! Dirty time logs: which transaction groups a device has missed.

/// A set of transaction groups, as ranges in rising order that neither touch nor overlap.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TxgRanges(Vec<(u64, u64)>);

impl TxgRanges {
    /// The union of ranges, each from its first group to before its second; empty ranges are left out.
    pub fn new(ranges: impl IntoIterator<Item = (u64, u64)>) -> Self {
        let mut all: Vec<_> = ranges.into_iter().filter(|(start, end)| start < end).collect();
        all.sort_unstable();
        let mut out: Vec<(u64, u64)> = Vec::with_capacity(all.len());
        for (start, end) in all {
            match out.last_mut() {
                Some(last) if start <= last.1 => last.1 = last.1.max(end),
                _ => out.push((start, end)),
            }
        }
        Self(out)
    }

    /// Adds a group.
    pub fn add(&mut self, txg: u64) {
        // Nearly always the newest: the last range grows.
        match self.0.last_mut() {
            Some(last) if txg == last.1 => last.1 = txg.saturating_add(1),
            _ => {
                let all = std::mem::take(&mut self.0);
                *self = Self::new(all.into_iter().chain([(txg, txg.saturating_add(1))]));
            }
        }
    }

    /// Whether the group is in the set.
    pub fn contains(&self, txg: u64) -> bool {
        let next = self.0.partition_point(|(start, _)| *start <= txg);
        next > 0 && txg < self.0[next - 1].1
    }

    /// Whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The ranges, each from its first group to before its second.
    pub fn iter(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.0.iter().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ranges in any order, touching or overlapping, make the set of their members.
    #[test]
    fn ranges_merge() {
        let set = TxgRanges::new([(10, 20), (5, 8), (20, 25), (7, 9), (3, 3)]);
        assert_eq!(set.iter().collect::<Vec<_>>(), [(5, 9), (10, 25)]);
        let inside: Vec<u64> = (0..30).filter(|t| set.contains(*t)).collect();
        assert_eq!(inside, (5..9).chain(10..25).collect::<Vec<_>>());
        assert!(!TxgRanges::default().contains(0));
    }
}
