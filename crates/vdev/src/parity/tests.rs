use proptest::prelude::*;

use super::*;

/// Goal: the tables are the field's. Every element but 0 is a power of 2, and the worked values of
/// the polynomial 0x11d hold.
#[test]
fn field() {
    assert_eq!((times2(0x80), mul(2, 0x80), mul(4, 0x80), mul(0x8e, 2)), (0x1d, 0x1d, 0x3a, 1));
    for a in 1..=255 {
        assert_eq!(mul(a, inv(a)), 1);
        assert_eq!(EXP[usize::from(LOG[usize::from(a)])], a);
    }
}

/// Goal: with every number of columns up to the format's limit, the hardest losses can be inverted.
#[test]
fn wide_rows_recover() {
    for n in [1, 2, 17, 100, 254] {
        let data: Vec<Vec<u8>> = (0..n).map(|i| vec![(i * 7 + 3) as u8; 16]).collect();
        let all: Vec<&[u8]> = data.iter().map(Vec::as_slice).collect();
        let mut parity = vec![vec![0; 16]; 3];
        generate(&all, &mut parity);
        let mut lost = vec![0, n / 2, n - 1];
        lost.dedup();
        let have: Vec<_> = (0..n).map(|i| (!lost.contains(&i)).then_some(all[i])).collect();
        let parity: Vec<_> = parity.iter().map(|p| Some(p.as_slice())).collect();
        let got = recover(&have, &parity, 16).unwrap();
        for (i, col) in lost.iter().zip(got) {
            assert_eq!(col, data[*i]);
        }
    }
}

proptest! {
    /// Goal: whatever columns are lost, data or parity, up to as many as there is parity, the data
    /// are recovered. With one more they are not.
    #[test]
    fn every_combination_recovers(
        nparity in 1..=3usize,
        n in 1..12usize,
        short in 0..12usize,
        seed in any::<[u8; 32]>(),
    ) {
        let byte = |i: usize, j: usize| seed[(i * 13 + j * 5) % 32].wrapping_mul(j as u8 | 1) ^ i as u8;
        let data: Vec<Vec<u8>> =
            (0..n).map(|i| (0..if i >= short && i > 0 { 32 } else { 64 }).map(|j| byte(i, j)).collect()).collect();
        let all: Vec<&[u8]> = data.iter().map(Vec::as_slice).collect();
        let mut parity = vec![vec![0; 64]; nparity];
        generate(&all, &mut parity);
        let width = n + nparity;
        for set in 0..1u32 << width.min(15) {
            if set.count_ones() as usize > nparity + 1 {
                continue;
            }
            let gone = |c: usize| set >> c & 1 == 1;
            let have: Vec<_> = (0..n).map(|i| (!gone(nparity + i)).then_some(all[i])).collect();
            let pars: Vec<_> = (0..nparity).map(|p| (!gone(p)).then_some(parity[p].as_slice())).collect();
            let lost: Vec<usize> = (0..n).filter(|i| gone(nparity + i)).collect();
            let left = (0..nparity).filter(|p| !gone(*p)).count();
            let got = recover(&have, &pars, 64);
            prop_assert_eq!(got.is_some(), lost.len() <= left);
            for (i, col) in lost.iter().zip(got.iter().flatten()) {
                prop_assert_eq!(&col[..data[*i].len()], &data[*i][..]);
                prop_assert!(col[data[*i].len()..].iter().all(|b| *b == 0));
            }
        }
    }
}

proptest! {
    /// Goal: the quick parity code gives the same as the plain one, whatever the columns' lengths.
    #[test]
    fn encoding_is_generation(
        seed in prop::collection::vec(any::<u8>(), 512..2048),
        ndata in 1usize..9,
        nparity in 1usize..=3,
        height in 1usize..4,
        short in 0usize..9,
    ) {
        let col = |i: usize| -> Vec<u8> {
            let len = (height - usize::from(i >= short)) * 512;
            seed.iter().cycle().skip(i * 131).take(len).copied().collect()
        };
        let data: Vec<Vec<u8>> = (0..ndata).map(col).collect();
        let data: Vec<&[u8]> = data.iter().map(Vec::as_slice).collect();
        let mut want = vec![vec![0; height * 512]; nparity];
        generate(&data, &mut want);
        let mut have = vec![vec![1; height * 512]; nparity];
        encode(&data, &mut have.iter_mut().map(Vec::as_mut_slice).collect::<Vec<_>>());
        prop_assert_eq!(have, want);
    }
}
