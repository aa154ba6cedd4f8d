//! Edon-R-512, and the MAC that OpenZFS makes of it.
//!
//! # Theory
//! Edon-R multiplies vectors of eight 64-bit words in a quasigroup. For each output word, a product
//! of `x` and `y` does the following:
//!
//! 1. It sums five words of each vector, with a constant in the first sum.
//! 2. It rotates the sums.
//! 3. It XORs and adds the results.
//!
//! The index sets below are the orthogonal Latin squares of the submission. A 128-byte block is two
//! vectors. They go through eight products together with the chaining pipe, which is two vectors as
//! well. The tweaked version of 2009 then XORs the old pipe and the swapped halves of the block
//! into the result.
//!
//! The MAC puts a block of 128 bytes before the data, derived from the salt: H(salt) || H(H(salt)).
//! It fills a block, so the pipe after it is the template.
//!
//! # See
//! Gligoroski et al., "Cryptographic Hash Function EDON-R", NIST SHA-3 submission. OpenZFS:
//! `edonr_zfs.c`.

type Vector = [u64; 8];

/// Bytes of a block.
const BLOCK: usize = 128;
/// Bytes of the length field in the padding, which counts bits.
const LENGTH: usize = 8;

/// Constant in the first sum over `x`; its complement is in the first sum over `y`.
const LEAD: u64 = 0xaaaa_aaaa_aaaa_aaaa;

/// The two vectors that the hash carries from block to block.
#[derive(Clone, Copy)]
struct Pipe(Vector, Vector);

impl Pipe {
    /// Bytes 0x80 to 0xff in order, as big-endian words.
    const START: Self = {
        let mut words = [0u64; 16];
        let mut i = 0;
        while i < 16 {
            words[i] = 0x8081_8283_8485_8687 + 0x0808_0808_0808_0808 * i as u64;
            i += 1;
        }
        let (mut a, mut b) = ([0; 8], [0; 8]);
        let mut i = 0;
        while i < 8 {
            a[i] = words[i];
            b[i] = words[i + 8];
            i += 1;
        }
        Self(a, b)
    };

    fn absorb(&mut self, block: &[u8; BLOCK]) {
        let (mut lo, mut hi) = ([0; 8], [0; 8]);
        let words = block.as_chunks::<8>().0;
        for i in 0..8 {
            lo[i] = u64::from_le_bytes(words[i]);
            hi[i] = u64::from_le_bytes(words[i + 8]);
        }
        let Self(p, q) = *self;

        let a = product(&reversed(&hi), &lo);
        let b = product(&a, &hi);
        let c = product(&q, &a);
        let d = product(&c, &b);
        let e = product(&c, &p);
        let f = product(&d, &e);
        let g = product(&reversed(&lo), &e);
        let h = product(&g, &f);
        for i in 0..8 {
            self.0[i] = p[i] ^ hi[i] ^ g[i];
            self.1[i] = q[i] ^ lo[i] ^ h[i];
        }
    }
}

fn reversed(v: &Vector) -> Vector {
    std::array::from_fn(|i| v[7 - i])
}

/// The wrapping sum of some words.
macro_rules! sum {
    ($first:expr $(, $more:expr)*) => { $first$(.wrapping_add($more))* };
}

/// The transform of a product's left side, made from shared pairs of words and rotated.
///
/// It is the sums of the words {0,1,2,4,7}, {0,1,3,4,7}, {0,1,4,6,7}, {2,3,5,6,7}, {1,2,3,5,6},
/// {0,2,3,4,5}, {0,1,5,6,7} and {2,3,4,5,6}.
#[inline(always)]
fn left(x: &Vector) -> Vector {
    let [p, q, r, s] = [sum!(x[0], x[4]), sum!(x[1], x[7]), sum!(x[2], x[3]), sum!(x[5], x[6])];
    let [pq, rs] = [sum!(p, q), sum!(r, s)];
    [
        sum!(pq, x[2], LEAD),
        sum!(pq, x[3]).rotate_left(5),
        sum!(pq, x[6]).rotate_left(15),
        sum!(rs, x[7]).rotate_left(22),
        sum!(rs, x[1]).rotate_left(31),
        sum!(p, r, x[5]).rotate_left(40),
        sum!(q, s, x[0]).rotate_left(50),
        sum!(rs, x[4]).rotate_left(59),
    ]
}

/// The transform of a product's right side, made in the same way.
///
/// It is the sums of the words {0,1,2,5,7}, {0,1,3,4,6}, {0,1,2,3,5}, {2,3,4,6,7}, {0,1,3,4,5},
/// {2,4,5,6,7}, {1,2,5,6,7} and {0,3,4,6,7}.
#[inline(always)]
fn right(y: &Vector) -> Vector {
    let [p, q, r, s] = [sum!(y[0], y[1]), sum!(y[2], y[5]), sum!(y[3], y[4]), sum!(y[6], y[7])];
    let [pq, pr, qs, rs] = [sum!(p, q), sum!(p, r), sum!(q, s), sum!(r, s)];
    [
        sum!(pq, y[7], !LEAD),
        sum!(pr, y[6]).rotate_left(10),
        sum!(pq, y[3]).rotate_left(19),
        sum!(rs, y[2]).rotate_left(29),
        sum!(pr, y[5]).rotate_left(36),
        sum!(qs, y[4]).rotate_left(44),
        sum!(qs, y[1]).rotate_left(48),
        sum!(rs, y[0]).rotate_left(55),
    ]
}

/// The product of the quasigroup: each word is the sum of the XORs of three words of either
/// transform.
#[inline(always)]
fn product(x: &Vector, y: &Vector) -> Vector {
    let (s, t) = (left(x), right(y));
    let [sp, sq, sr, ss] = [s[0] ^ s[4], s[1] ^ s[7], s[2] ^ s[3], s[5] ^ s[6]];
    let [tp, tq, tr, ts] = [t[0] ^ t[1], t[6] ^ t[7], t[3] ^ t[4], t[2] ^ t[5]];
    [
        sum!(sp ^ s[1], tp ^ t[5]),
        sum!(sp ^ s[7], tq ^ t[2]),
        sum!(sq ^ s[6], tp ^ t[3]),
        sum!(sr ^ s[4], tr ^ t[0]),
        sum!(sq ^ s[0], ts ^ t[1]),
        sum!(ss ^ s[3], tr ^ t[6]),
        sum!(ss ^ s[2], ts ^ t[7]),
        sum!(sr ^ s[5], tq ^ t[4]),
    ]
}

/// Absorbs `data` and its padding, after `before` bytes (whole blocks) that are already in `pipe`.
fn finish(mut pipe: Pipe, before: usize, data: &[u8]) -> [u8; 64] {
    let (blocks, rest) = data.as_chunks::<BLOCK>();
    for block in blocks {
        pipe.absorb(block);
    }
    let mut tail = [0; 2 * BLOCK];
    tail[..rest.len()].copy_from_slice(rest);
    tail[rest.len()] = 0x80;
    let end = if rest.len() < BLOCK - LENGTH { BLOCK } else { 2 * BLOCK };
    let bits = (before as u64 + data.len() as u64) * 8;
    tail[end - LENGTH..end].copy_from_slice(&bits.to_le_bytes());
    for block in tail[..end].as_chunks::<BLOCK>().0 {
        pipe.absorb(block);
    }
    let mut digest = [0; 64];
    for (raw, word) in digest.as_chunks_mut::<8>().0.iter_mut().zip(pipe.1) {
        *raw = word.to_le_bytes();
    }
    digest
}

/// Edon-R-512 of `data`.
pub(super) fn edonr512(data: &[u8]) -> [u8; 64] {
    finish(Pipe::START, 0, data)
}

/// The pipe after the block that is made from the pool's salt.
pub(super) struct EdonrMac {
    pipe: Pipe,
}

impl EdonrMac {
    pub(super) fn new(salt: &[u8; 32]) -> Self {
        let first = edonr512(salt);
        let mut block = [0; BLOCK];
        block[..64].copy_from_slice(&first);
        block[64..].copy_from_slice(&edonr512(&first));
        let mut pipe = Pipe::START;
        pipe.absorb(&block);
        Self { pipe }
    }

    /// The first 32 bytes of the MAC of `data`, as in a block pointer.
    pub(super) fn hash(&self, data: &[u8]) -> [u8; 32] {
        let digest = finish(self.pipe, BLOCK, data);
        let mut half = [0; 32];
        half.copy_from_slice(&digest[..32]);
        half
    }
}

#[cfg(test)]
mod tests;
