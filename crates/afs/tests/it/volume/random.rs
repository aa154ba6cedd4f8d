//! Incremental dumps at random.

use super::in_place::{all_named, merged, named};
use super::*;

/// Numbers that look random, the same for the same seed.
pub(super) struct Dice(pub u64);

impl Dice {
    pub(super) fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) % end as u64) as usize
    }
}

/// A tree with directories on three levels, links and a file of several blocks.
pub(super) fn base() -> Vec<Made> {
    let mut two = file(2, 1, vec![7; 300_000]);
    two.0.attributes.as_mut().unwrap().link_count = 2;
    vec![
        directory(1, 0, 4, &[("a", 2), ("b", 2), ("c", 3), ("d", 5), ("e", 4)]),
        directory(3, 1, 3, &[("f", 6), ("g", 7)]),
        directory(5, 1, 2, &[]),
        directory(7, 3, 2, &[("h", 8), ("i", 10)]),
        two,
        (record(4, VnodeType::Symlink, 1, 1, b"target"), b"target".to_vec()),
        file(6, 3, b"six".to_vec()),
        file(8, 7, Vec::new()),
        file(10, 7, vec![1; 2000]),
    ]
}

/// A change of one vnode that keeps the tree a tree.
fn harmless(dice: &mut Dice, made: &mut Made, whole: &Made) {
    made.clone_from(whole);
    let attributes = made.0.attributes.as_mut().unwrap();
    attributes.mode = dice.below(0o1000) as u16;
    attributes.owner = PrincipalId(dice.below(100) as i32 - 50);
    if attributes.kind == VnodeType::Directory {
        return;
    }
    attributes.kind = if dice.below(4) == 0 { VnodeType::Symlink } else { VnodeType::File };
    let most = if attributes.kind == VnodeType::Symlink { 100 } else { 1_500_000 };
    made.1 = vec![dice.below(3) as u8; 1 + dice.below(most)];
    attributes.length = Some(made.1.len() as u64);
}

/// Any change.
pub(super) fn change(dice: &mut Dice, all: &mut Vec<Made>, base: &[Made]) {
    let (i, j) = (dice.below(all.len()), dice.below(all.len()));
    let any = |dice: &mut Dice| base[dice.below(base.len())].0.vnode;
    match dice.below(12) {
        0 => drop(all.remove(i)),
        1 => all.push(all[i].clone()),
        2 => all[i].0.unique = Unique(dice.below(120) as u32),
        3 => all.push(named(dice.below(12) as u32 + 1, 100 + dice.below(12) as u32)),
        4 => {
            if let Some(attributes) = &mut all[i].0.attributes {
                attributes.parent = any(dice);
            }
        }
        5 => {
            if let Some(attributes) = &mut all[i].0.attributes {
                attributes.link_count = dice.below(5) as u16;
            }
        }
        6 => {
            let number = any(dice).0 | 1;
            let names = ["a", "b", "c", "g", "z"];
            let count = dice.below(names.len());
            let entries: Vec<_> = names[..count].iter().map(|name| (*name, any(dice).0)).collect();
            let parent = any(dice).0 | 1;
            all.retain(|(record, _)| record.vnode.0 != number);
            all.push(directory(number, parent, 2 + dice.below(3) as u16, &entries));
        }
        7 => all.swap(i, j),
        _ => {
            let whole = base.iter().find(|(record, _)| record.vnode == all[i].0.vnode);
            if let Some(whole) = whole {
                harmless(dice, &mut all[i], whole);
            }
        }
    }
}

/// Goal: whatever an incremental dump says, its restore ends, and leaves a volume that the next
/// restore replaces. If it succeeds, the volume has what the dump says, and its own dump can be
/// restored.
#[test]
fn increments_at_random() {
    let rig = Rig::new();
    let base = base();
    let full = write(&base);
    let mut fitted = 0;
    for seed in 0..400 {
        let mut dice = Dice(seed);
        rig.restore(&full).unwrap();
        let mut all = all_named(&base);
        for _ in 0..=dice.below(3) {
            change(&mut dice, &mut all, &base);
        }
        let mut bytes = write(&all);
        let flipped = dice.below(4) == 0;
        if flipped {
            let at = dice.below(bytes.len());
            bytes[at] ^= 1 << dice.below(8);
        }
        if rig.restore(&bytes).is_err() {
            continue;
        }
        fitted += 1;
        let after = rig.dump(DumpScope::FULL);
        if !flipped {
            assert_same(&parse(&after), &merged(&full, &bytes));
        }
        rig.restore(&after).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        assert_same(&parse(&rig.dump(DumpScope::FULL)), &parse(&after));
    }
    assert!((50..350).contains(&fitted), "{fitted} of 400 fitted");
    rig.end();
}
