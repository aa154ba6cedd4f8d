//! Names whose ZAP hashes collide, whatever the salt is.
//!
//! The hash is a CRC-64, which is linear. So the difference of two hashes depends only on the
//! difference of the names, if they are equally long. Names of octal digits have three free bits a
//! digit. Gaussian elimination finds the sums of these bits that don't change the hash.

/// Digits after the prefix: 45 free bits.
const DIGITS: usize = 15;
/// The bits of the hash that a ZAP keeps.
const KEPT: u32 = 28;

/// The hash of a name with the salt 0.
fn hash(name: &[u8]) -> u64 {
    let step = |h: u64| if h & 1 == 1 { h >> 1 ^ 0xC96C_5795_D787_0F42 } else { h >> 1 };
    name.iter().fold(0, |h, b| (0..8).fold(h ^ u64::from(*b), |h, _| step(h)))
}

/// Names that begin with a prefix, and whose hashes begin with the same `equal` bits.
///
/// With 28 bits, all that a ZAP keeps are the same. With less, the next bit differs in half of the
/// names.
///
/// # Panics
/// If `equal` is above 28, or `count` above 2^17.
pub fn colliding(prefix: &str, equal: u32, count: usize) -> Vec<String> {
    colliding_with(prefix, "", equal, count)
}

/// The same for names that collide when a suffix follows; they are returned without it.
///
/// # Panics
/// As `colliding`.
pub fn colliding_with(prefix: &str, suffix: &str, equal: u32, count: usize) -> Vec<String> {
    let name = |bits: u64| format!("{prefix}{bits:015o}");
    let hash = |bits: u64| hash(format!("{}{suffix}", name(bits)).as_bytes());
    assert!(equal <= KEPT && count <= 1 << 17, "a hash has 28 bits, and 2^17 names have the same");
    let zero = hash(0);
    // Pairs of a difference of hashes and the free bits that cause it.
    let mut pivots: Vec<(u64, u64)> = Vec::new();
    let mut same = Vec::new();
    for bit in 0..3 * DIGITS {
        let mut free = 1 << bit;
        let mut differ = (hash(free) ^ zero) >> (64 - equal.max(1));
        for (d, f) in &pivots {
            if differ & (1 << d.ilog2()) != 0 {
                (differ, free) = (differ ^ d, free ^ f);
            }
        }
        match differ {
            0 => same.push(free),
            _ => pivots.push((differ, free)),
        }
    }
    if equal < KEPT {
        let next = |free: &u64| (hash(*free) ^ zero) >> (63 - equal) & 1 == 1;
        let at = same.iter().position(next).expect("the bits of a CRC are independent");
        same.swap(0, at);
    }
    (0..count as u64)
        .map(|n| {
            let chosen = same.iter().enumerate().filter(|(i, _)| n >> i & 1 == 1);
            name(chosen.fold(0, |sum, (_, free)| sum ^ free))
        })
        .collect()
}
