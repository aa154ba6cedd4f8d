//! Dirty time logs: which transaction groups a device has missed.

/// A set of txgs, as ranges in rising order that neither touch nor overlap.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TxgRanges(Vec<(u64, u64)>);

impl TxgRanges {
    /// The union of ranges, each from its first txg to before its second. Empty ranges are left
    /// out.
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

    /// Adds a txg.
    pub fn add(&mut self, txg: u64) {
        // The txg is nearly always the newest: the last range grows.
        match self.0.last_mut() {
            Some(last) if txg == last.1 => last.1 = txg.saturating_add(1),
            _ => {
                let all = std::mem::take(&mut self.0);
                *self = Self::new(all.into_iter().chain([(txg, txg.saturating_add(1))]));
            }
        }
    }

    /// The txgs that are in at least `least` of these sets; 0 counts as 1.
    pub fn in_at_least(least: usize, sets: &[Self]) -> Self {
        let mut ends: Vec<(u64, bool)> =
            sets.iter().flat_map(|s| &s.0).flat_map(|(start, end)| [(*start, true), (*end, false)]).collect();
        // Where one set ends as another begins, the count does not fall between them. So beginnings
        // go first.
        ends.sort_unstable_by_key(|(at, begins)| (*at, !begins));
        let (mut deep, mut since, mut out) = (0usize, 0, Vec::new());
        for (at, begins) in ends {
            let before = deep;
            deep = if begins { deep + 1 } else { deep - 1 };
            if before < least.max(1) && deep >= least.max(1) {
                since = at;
            } else if before >= least.max(1) && deep < least.max(1) {
                out.push((since, at));
            }
        }
        Self::new(out)
    }

    /// Whether the txg is in the set.
    pub fn contains(&self, txg: u64) -> bool {
        let next = self.0.partition_point(|(start, _)| *start <= txg);
        next > 0 && txg < self.0[next - 1].1
    }

    /// Whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The ranges, each from its first txg to before its second.
    pub fn iter(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.0.iter().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: counting over several sets agrees with counting txg by txg.
    #[test]
    fn sets_are_counted() {
        let sets = [
            TxgRanges::new([(1, 5), (8, 12)]),
            TxgRanges::new([(3, 8)]),
            TxgRanges::new([(4, 6), (8, 9), (20, 22)]),
            TxgRanges::default(),
        ];
        for least in 1..=4 {
            let got = TxgRanges::in_at_least(least, &sets);
            for txg in 0..30 {
                let count = sets.iter().filter(|s| s.contains(txg)).count();
                assert_eq!(got.contains(txg), count >= least, "{txg} in {least}");
            }
        }
    }

    /// Goal: ranges in any order, touching or overlapping, make the set of their members.
    #[test]
    fn ranges_merge() {
        let set = TxgRanges::new([(10, 20), (5, 8), (20, 25), (7, 9), (3, 3)]);
        assert_eq!(set.iter().collect::<Vec<_>>(), [(5, 9), (10, 25)]);
        let inside: Vec<u64> = (0..30).filter(|t| set.contains(*t)).collect();
        assert_eq!(inside, (5..9).chain(10..25).collect::<Vec<_>>());
        assert!(!TxgRanges::default().contains(0));
    }
}
