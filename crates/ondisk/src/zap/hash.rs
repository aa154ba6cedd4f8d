//! The hash of ZAP keys: CRC-64 (ECMA-182, reflected), started with the object's salt.

/// `ZFS_CRC64_POLY`, reflected.
const POLY: u64 = 0xC96C_5795_D787_0F42;

const TABLE: [u64; 256] = {
    let mut t = [0u64; 256];
    let mut i = 0;
    while i < 256 {
        let mut c = i as u64;
        let mut bit = 0;
        while bit < 8 {
            c = if c & 1 != 0 { (c >> 1) ^ POLY } else { c >> 1 };
            bit += 1;
        }
        t[i] = c;
        i += 1;
    }
    t
};

/// How many high bits of the hash a ZAP keeps (`zap_hashbits`).
///
/// In a serialized cursor, the other bits hold the collision differentiator.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum HashBits {
    /// 28 bits, in micro ZAPs and most fat ZAPs, so that cursors usually fit into 32 bits.
    Bits28,
    /// 48 bits, in fat ZAPs with `ZAP_FLAG_HASH64`.
    Bits48,
}

impl HashBits {
    /// The number of bits.
    pub fn get(self) -> u32 {
        match self {
            Self::Bits28 => 28,
            Self::Bits48 => 48,
        }
    }

    /// Clears the bits of `hash` that the ZAP doesn't keep.
    pub fn mask(self, hash: u64) -> u64 {
        hash & !((1u64 << (64 - self.get())) - 1)
    }

    /// The first collision differentiator that is too large (`zap_maxcd`).
    pub fn max_cd(self) -> u32 {
        match self {
            Self::Bits28 => u32::MAX,
            Self::Bits48 => 0xffff,
        }
    }
}

/// Hash of a normalized name, without its final NUL (`zap_hash`).
pub fn hash_bytes(salt: u64, name: &[u8], bits: HashBits) -> u64 {
    let h = name.iter().fold(salt, |h, &b| step(h, b));
    bits.mask(h)
}

/// Hash of a key of 64-bit words (`zap_hash`).
pub fn hash_words(salt: u64, key: &[u64], bits: HashBits) -> u64 {
    let h = key.iter().fold(salt, |h, w| w.to_le_bytes().iter().fold(h, |h, &b| step(h, b)));
    bits.mask(h)
}

fn step(h: u64, b: u8) -> u64 {
    (h >> 8) ^ TABLE[usize::from((h as u8) ^ b)]
}
