//! Edon-R-512, and the MAC that OpenZFS makes of it.
//!
//! # Theory
//! Edon-R multiplies vectors of eight 64-bit words in a quasigroup: a product of `x` and `y` sums five words of each
//! for every output (with a constant in the first sum), rotates, and XORs and adds the results. The index
//! tables below are the orthogonal Latin squares of the submission. A 128-byte block, as two vectors, goes through eight
//! products together with the chaining pipe (two vectors); the tweaked version of 2009 then XORs the old pipe
//! and the swapped halves of the block into the result.
//!
//! The MAC puts a 128-byte block derived from the salt, H(salt) || H(H(salt)), before the data: it fills a block, so
//! the pipe after it is the template.
//!
//! # See
//! Gligoroski et al., "Cryptographic Hash Function EDON-R", NIST SHA-3 submission.

type Vector = [u64; 8];

/// Bytes of a block.
const BLOCK: usize = 128;
/// Bytes of the padding's length field, which counts bits.
const LENGTH: usize = 8;

/// Added to the first sum over `x`; its complement to the first over `y`.
const LEAD: u64 = 0xaaaa_aaaa_aaaa_aaaa;
/// Which words of `x` sum up to each word of its transform, and how far they rotate.
const X_SUMS: [([usize; 5], u32); 8] = [
    ([0, 1, 2, 4, 7], 0),
    ([0, 1, 3, 4, 7], 5),
    ([0, 1, 4, 6, 7], 15),
    ([2, 3, 5, 6, 7], 22),
    ([1, 2, 3, 5, 6], 31),
    ([0, 2, 3, 4, 5], 40),
    ([0, 1, 5, 6, 7], 50),
    ([2, 3, 4, 5, 6], 59),
];
/// The same for `y`.
const Y_SUMS: [([usize; 5], u32); 8] = [
    ([0, 1, 2, 5, 7], 0),
    ([0, 1, 3, 4, 6], 10),
    ([0, 1, 2, 3, 5], 19),
    ([2, 3, 4, 6, 7], 29),
    ([0, 1, 3, 4, 5], 36),
    ([2, 4, 5, 6, 7], 44),
    ([1, 2, 5, 6, 7], 48),
    ([0, 3, 4, 6, 7], 55),
];
/// Which words of the two transforms are XORed and then added to make each word of the product.
const MIX: [([usize; 3], [usize; 3]); 8] = [
    ([0, 1, 4], [0, 1, 5]),
    ([0, 4, 7], [2, 6, 7]),
    ([1, 6, 7], [0, 1, 3]),
    ([2, 3, 4], [0, 3, 4]),
    ([0, 1, 7], [1, 2, 5]),
    ([3, 5, 6], [3, 4, 6]),
    ([2, 5, 6], [2, 5, 7]),
    ([2, 3, 5], [4, 6, 7]),
];

/// The two vectors that pass from block to block.
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

#[inline(always)]
fn transform(v: &Vector, sums: &[([usize; 5], u32); 8], lead: u64) -> Vector {
    std::array::from_fn(|i| {
        let ([a, b, c, d, e], turn) = sums[i];
        let sum = v[a].wrapping_add(v[b]).wrapping_add(v[c]).wrapping_add(v[d]).wrapping_add(v[e]);
        if i == 0 { sum.wrapping_add(lead) } else { sum.rotate_left(turn) }
    })
}

#[inline(always)]
fn product(x: &Vector, y: &Vector) -> Vector {
    let s = transform(x, &X_SUMS, LEAD);
    let t = transform(y, &Y_SUMS, !LEAD);
    std::array::from_fn(|i| {
        let ([a, b, c], [d, e, f]) = MIX[i];
        (s[a] ^ s[b] ^ s[c]).wrapping_add(t[d] ^ t[e] ^ t[f])
    })
}

/// Absorbs `data` and its padding, when `before` bytes (whole blocks) are in `pipe` already.
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

/// The pipe after the block that the pool's salt makes.
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

    /// The first 32 bytes of the MAC of `data`, which is what a block pointer holds.
    pub(super) fn hash(&self, data: &[u8]) -> [u8; 32] {
        let digest = finish(self.pipe, BLOCK, data);
        let mut half = [0; 32];
        half.copy_from_slice(&digest[..32]);
        half
    }
}

#[cfg(test)]
mod tests;
