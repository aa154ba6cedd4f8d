//! The zlib stream that the original zlib makes at level 6, for small inputs.
//!
//! # Theory
//! All deflate streams decode alike. But users compare and copy a resume token as text, and OpenZFS
//! makes it with zlib. The encoder that compresses blocks finds other matches. So this encoder
//! takes zlib's decisions:
//!
//! * hash chains of three bytes
//! * a match put off by one byte if the next match is longer
//! * for the whole input one block, of the cheapest of three kinds
//!
//! It has no window: inputs have at most [`MAX`] bytes, which fit into one block.
//!
//! # See
//! RFC 1950, RFC 1951. OpenZFS: `get_receive_resume_token_impl`.

/// Longest input: zlib with its default memory puts so many bytes into one block in any case.
pub const MAX: usize = 16_000;

const MIN_MATCH: usize = 3;
const MAX_MATCH: usize = 258;
/// A match of three bytes is not worth a distance beyond this (`TOO_FAR`).
const TOO_FAR: usize = 4096;
/// Level 6: after a match of this length, the search is cut to a quarter (`good_length`).
const GOOD: usize = 8;
/// Level 6: a match of at least this length is taken at once (`max_lazy`).
const LAZY: usize = 16;
/// Level 6: a match of this length ends the search (`nice_length`).
const NICE: usize = 128;
/// Level 6: the search visits so many positions (`max_chain`).
const CHAIN: usize = 128;

/// Number of codes for literals and lengths.
const L_CODES: usize = 286;
/// Number of codes for distances.
const D_CODES: usize = 30;
/// Number of codes for code lengths.
const BL_CODES: usize = 19;
const END_BLOCK: usize = 256;
/// The order in which the stream has the lengths of the codes for code lengths.
const BL_ORDER: [usize; BL_CODES] = [16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15];

/// A literal, or a length and a distance.
#[derive(Clone, Copy)]
enum Symbol {
    Literal(u8),
    Match { length: usize, distance: usize },
}

/// Code of a length, the number of its extra bits, and their value.
fn length_code(length: usize) -> (usize, u32, u64) {
    if length == MAX_MATCH {
        return (285, 0, 0);
    }
    code_of(length - MIN_MATCH, 2, 257)
}

/// Code of a distance, the number of its extra bits, and their value.
fn distance_code(distance: usize) -> (usize, u32, u64) {
    code_of(distance - 1, 1, 0)
}

/// Codes come in groups of `1 << log`, each group with one more extra bit.
fn code_of(value: usize, log: u32, base: usize) -> (usize, u32, u64) {
    if value < 2 << log {
        return (base + value, 0, 0);
    }
    let extra = value.ilog2() - log;
    let step = value >> extra;
    let code = base + ((extra as usize) << log) + step;
    (code, extra, (value & ((1 << extra) - 1)) as u64)
}

/// Chains of positions with the same three bytes.
struct Chains {
    head: Vec<usize>,
    prev: Vec<usize>,
}

impl Chains {
    fn new(len: usize) -> Self {
        // Position 0 stands for the end of a chain, as in zlib, so nothing ever matches there.
        Self { head: vec![0; 1 << 15], prev: vec![0; len] }
    }

    /// Adds a position, and returns the previous position in its chain.
    fn enter(&mut self, data: &[u8], at: usize) -> usize {
        let h = usize::from(data[at]) << 10 ^ usize::from(data[at + 1]) << 5 ^ usize::from(data[at + 2]);
        let before = std::mem::replace(&mut self.head[h & 0x7fff], at);
        self.prev[at] = before;
        before
    }

    /// The longest match for the bytes at `at` that is longer than `best`: length and position.
    fn longest(&self, data: &[u8], at: usize, first: usize, best: usize) -> Option<(usize, usize)> {
        let lookahead = data.len() - at;
        let nice = NICE.min(lookahead);
        let mut tries = if best >= GOOD { CHAIN >> 2 } else { CHAIN };
        let (mut best, mut found) = (best, None);
        let mut place = first;
        while place != 0 && tries != 0 {
            let limit = MAX_MATCH.min(lookahead);
            let same = (0..limit).take_while(|i| data[place + i] == data[at + i]).count();
            if same > best && same >= MIN_MATCH {
                (best, found) = (same, Some((same, place)));
                if same >= nice {
                    break;
                }
            }
            place = self.prev[place];
            tries -= 1;
        }
        found
    }
}

/// Splits the input into symbols (zlib's `deflate_slow`).
fn parse(data: &[u8]) -> Vec<Symbol> {
    let mut out = Vec::new();
    let mut chains = Chains::new(data.len());
    let (mut length, mut place) = (MIN_MATCH - 1, 0);
    let mut pending = false;
    let mut at = 0;
    while at < data.len() {
        let enterable = at + MIN_MATCH <= data.len();
        let first = if enterable { chains.enter(data, at) } else { 0 };
        let (before, before_place) = (length, place);
        length = MIN_MATCH - 1;
        if first != 0 && before < LAZY {
            match chains.longest(data, at, first, before) {
                Some((l, p)) if l > MIN_MATCH || at - p <= TOO_FAR => (length, place) = (l, p),
                // zlib keeps the length of the previous match if it finds no longer one.
                None => length = before.min(data.len() - at),
                Some((_, p)) => place = p,
            }
            if length == MIN_MATCH && at - place > TOO_FAR {
                length = MIN_MATCH - 1;
            }
        }
        if before >= MIN_MATCH && length <= before {
            out.push(Symbol::Match { length: before, distance: at - 1 - before_place });
            for next in at + 1..at + before - 1 {
                if next + MIN_MATCH <= data.len() {
                    chains.enter(data, next);
                }
            }
            at += before - 1;
            pending = false;
            length = MIN_MATCH - 1;
        } else {
            if pending {
                out.push(Symbol::Literal(data[at - 1]));
            }
            pending = true;
            at += 1;
        }
    }
    if pending {
        out.push(Symbol::Literal(data[data.len() - 1]));
    }
    out
}

/// A Huffman code: lengths, and code words with their first bit lowest.
#[derive(Clone)]
struct Code {
    lengths: Vec<u8>,
    words: Vec<u64>,
}

impl Code {
    /// Assigns code words to lengths (RFC 1951, 3.2.2).
    fn of(lengths: Vec<u8>) -> Self {
        let mut count = [0u64; 17];
        for &l in &lengths {
            count[usize::from(l)] += 1;
        }
        count[0] = 0;
        let mut next = [0u64; 17];
        for bits in 1..17 {
            next[bits] = (next[bits - 1] + count[bits - 1]) << 1;
        }
        let words = lengths
            .iter()
            .map(|&l| {
                let word = next[usize::from(l)];
                next[usize::from(l)] += 1;
                if l == 0 { 0 } else { word.reverse_bits() >> (64 - u32::from(l)) }
            })
            .collect();
        Self { lengths, words }
    }

    /// The fixed code of literals and lengths.
    fn fixed_literals() -> Self {
        Self::of(
            (0..288)
                .map(|i| {
                    if i < 144 {
                        8
                    } else if i < 256 {
                        9
                    } else if i < 280 {
                        7
                    } else {
                        8
                    }
                })
                .collect(),
        )
    }

    /// The fixed code of distances.
    fn fixed_distances() -> Self {
        Self::of(vec![5; D_CODES])
    }

    /// The code that zlib makes for these frequencies, and its last used symbol (zlib's
    /// `build_tree`).
    fn build(freq: &[u64], limit: usize) -> (Self, usize) {
        let mut freq = freq.to_vec();
        let mut used: Vec<usize> = (0..freq.len()).filter(|i| freq[*i] > 0).collect();
        // A code of fewer than two symbols is filled up, because old decoders need two.
        let mut max = used.last().copied();
        while used.len() < 2 {
            let extra = match max {
                None => 0,
                Some(m) if m < 2 => m + 1,
                Some(_) => 0,
            };
            if max.is_none_or(|m| m < 2) {
                max = Some(extra);
            }
            freq[extra] = 1;
            used.push(extra);
        }
        let max = max.unwrap_or(0);
        (Self::of(lengths(&freq, &used, limit)), max)
    }
}

/// zlib's heap of tree nodes, sorted by frequency, then by depth.
struct Heap {
    nodes: Vec<usize>,
}

impl Heap {
    fn less(a: usize, b: usize, freq: &[u64], depth: &[u8]) -> bool {
        freq[a] < freq[b] || (freq[a] == freq[b] && depth[a] <= depth[b])
    }

    /// Moves the node at `k` (from 1) down to its position.
    fn down(&mut self, mut k: usize, freq: &[u64], depth: &[u8]) {
        let len = self.nodes.len() - 1;
        let v = self.nodes[k];
        let mut j = k * 2;
        while j <= len {
            if j < len && Self::less(self.nodes[j + 1], self.nodes[j], freq, depth) {
                j += 1;
            }
            if Self::less(v, self.nodes[j], freq, depth) {
                break;
            }
            self.nodes[k] = self.nodes[j];
            k = j;
            j *= 2;
        }
        self.nodes[k] = v;
    }
}

/// Lengths of the code words of the symbols in `used`, none longer than `limit` (zlib's
/// `build_tree`, `gen_bitlen`).
fn lengths(freq: &[u64], used: &[usize], limit: usize) -> Vec<u8> {
    let symbols = freq.len();
    let mut freq = freq.to_vec();
    let mut depth = vec![0u8; symbols];
    let mut parent = vec![usize::MAX; symbols];
    let mut heap = Heap { nodes: vec![0] };
    heap.nodes.extend(used);
    for k in (1..=used.len() / 2).rev() {
        heap.down(k, &freq, &depth);
    }
    // Nodes in the order in which they left the heap, the least frequent first.
    let mut left = Vec::new();
    while heap.nodes.len() > 2 {
        let a = heap.nodes[1];
        let last = heap.nodes.pop().expect("the heap holds two nodes");
        heap.nodes[1] = last;
        heap.down(1, &freq, &depth);
        let b = heap.nodes[1];
        left.extend([a, b]);
        let node = freq.len();
        freq.push(freq[a] + freq[b]);
        depth.push(depth[a].max(depth[b]) + 1);
        parent.push(usize::MAX);
        (parent[a], parent[b]) = (node, node);
        heap.nodes[1] = node;
        heap.down(1, &freq, &depth);
    }
    left.push(heap.nodes[1]);
    let mut bits = vec![0usize; freq.len()];
    let mut count = [0usize; 16];
    let mut overflow = 0usize;
    for &n in left.iter().rev().skip(1) {
        bits[n] = bits[parent[n]] + 1;
        if bits[n] > limit {
            bits[n] = limit;
            overflow += 1;
        }
        if n < symbols {
            count[bits[n]] += 1;
        }
    }
    // Words that are too long move below the longest that is shorter. Then the lengths are assigned
    // again.
    if overflow > 0 {
        let mut over = overflow as isize;
        while over > 0 {
            let mut b = limit - 1;
            while count[b] == 0 {
                b -= 1;
            }
            count[b] -= 1;
            count[b + 1] += 2;
            count[limit] -= 1;
            over -= 2;
        }
        let mut order = left.iter().copied().filter(|n| *n < symbols);
        for b in (1..=limit).rev() {
            for _ in 0..count[b] {
                if let Some(n) = order.next() {
                    bits[n] = b;
                }
            }
        }
    }
    let mut out = vec![0u8; symbols];
    for &n in used {
        out[n] = bits[n] as u8;
    }
    out
}

/// Run-length encodes code lengths: code, extra bits, their value (zlib's `scan_tree`).
fn runs(lengths: &[u8], out: &mut Vec<(usize, u32, u64)>) {
    let mut prev: Option<u8> = None;
    let mut i = 0;
    while i < lengths.len() {
        let cur = lengths[i];
        let most = match (cur, prev == Some(cur)) {
            (0, _) => 138,
            (_, true) => 6,
            (_, false) => 7,
        };
        let n = lengths[i..].iter().take(most).take_while(|l| **l == cur).count();
        let least = if cur != 0 && prev == Some(cur) { 3 } else { 4 };
        let plain = usize::from(cur);
        if cur == 0 && n >= 3 {
            out.push(if n <= 10 { (17, 3, n as u64 - 3) } else { (18, 7, n as u64 - 11) });
        } else if n < least {
            out.extend((0..n).map(|_| (plain, 0, 0)));
        } else if prev == Some(cur) {
            out.push((16, 2, n as u64 - 3));
        } else {
            out.push((plain, 0, 0));
            out.push((16, 2, n as u64 - 4));
        }
        i += n;
        // After a run, zlib starts again with the previous length.
        prev = Some(cur);
    }
}

/// Bits, lowest first.
#[derive(Default)]
struct Bits {
    out: Vec<u8>,
    hold: u64,
    n: u32,
}

impl Bits {
    fn put(&mut self, value: u64, bits: u32) {
        self.hold |= value << self.n;
        self.n += bits;
        while self.n >= 8 {
            self.out.push(self.hold as u8);
            self.hold >>= 8;
            self.n -= 8;
        }
    }

    fn align(&mut self) {
        if self.n > 0 {
            self.out.push(self.hold as u8);
        }
        (self.hold, self.n) = (0, 0);
    }
}

fn send(bits: &mut Bits, symbols: &[Symbol], literals: &Code, distances: &Code) {
    let put = |bits: &mut Bits, code: &Code, i: usize| bits.put(code.words[i], code.lengths[i].into());
    for s in symbols {
        match *s {
            Symbol::Literal(b) => put(bits, literals, b.into()),
            Symbol::Match { length, distance } => {
                let (code, extra, value) = length_code(length);
                put(bits, literals, code);
                bits.put(value, extra);
                let (code, extra, value) = distance_code(distance);
                put(bits, distances, code);
                bits.put(value, extra);
            }
        }
    }
    put(bits, literals, END_BLOCK);
}

/// Number of bits that the symbols take in a code.
fn cost(symbols: &[Symbol], literals: &Code, distances: &Code) -> usize {
    let one = |s: &Symbol| match *s {
        Symbol::Literal(b) => usize::from(literals.lengths[usize::from(b)]),
        Symbol::Match { length, distance } => {
            let ((l, le, _), (d, de, _)) = (length_code(length), distance_code(distance));
            usize::from(literals.lengths[l]) + usize::from(distances.lengths[d]) + (le + de) as usize
        }
    };
    symbols.iter().map(one).sum::<usize>() + usize::from(literals.lengths[END_BLOCK])
}

/// The zlib stream of `data` (`compress2` of zlib at level 6).
///
/// # Panics
/// If `data` has more than [`MAX`] bytes.
pub fn compress(data: &[u8]) -> Vec<u8> {
    assert!(data.len() <= MAX, "one block's worth");
    let symbols = parse(data);
    let (mut lf, mut df) = (vec![0u64; L_CODES], vec![0u64; D_CODES]);
    lf[END_BLOCK] = 1;
    for s in &symbols {
        match *s {
            Symbol::Literal(b) => lf[usize::from(b)] += 1,
            Symbol::Match { length, distance } => {
                lf[length_code(length).0] += 1;
                df[distance_code(distance).0] += 1;
            }
        }
    }
    let (literals, l_max) = Code::build(&lf, 15);
    let (distances, d_max) = Code::build(&df, 15);
    let mut tree = Vec::new();
    runs(&literals.lengths[..=l_max], &mut tree);
    runs(&distances.lengths[..=d_max], &mut tree);
    let mut bf = vec![0u64; BL_CODES];
    tree.iter().for_each(|t| bf[t.0] += 1);
    let (lengths, _) = Code::build(&bf, 7);
    let last = (3..BL_CODES).rev().find(|i| lengths.lengths[BL_ORDER[*i]] != 0).unwrap_or(3);
    let tree_bits: usize =
        tree.iter().map(|t| usize::from(lengths.lengths[t.0]) + t.1 as usize).sum::<usize>()
            + 3 * (last + 1)
            + 14;
    let dynamic = (cost(&symbols, &literals, &distances) + tree_bits + 3).div_ceil(8);
    let (fl, fd) = (Code::fixed_literals(), Code::fixed_distances());
    let fixed = (cost(&symbols, &fl, &fd) + 3).div_ceil(8);
    let mut bits = Bits::default();
    bits.out.extend([0x78, 0x9c]);
    if data.len() + 4 <= dynamic.min(fixed) {
        bits.put(1, 3);
        bits.align();
        let n = data.len() as u16;
        bits.out.extend(n.to_le_bytes());
        bits.out.extend((!n).to_le_bytes());
        bits.out.extend(data);
    } else if fixed <= dynamic {
        bits.put(3, 3);
        send(&mut bits, &symbols, &fl, &fd);
    } else {
        bits.put(5, 3);
        bits.put(l_max as u64 - 256, 5);
        bits.put(d_max as u64, 5);
        bits.put(last as u64 - 3, 4);
        for i in &BL_ORDER[..=last] {
            bits.put(lengths.lengths[*i].into(), 3);
        }
        for (code, extra, value) in tree {
            bits.put(lengths.words[code], lengths.lengths[code].into());
            bits.put(value, extra);
        }
        send(&mut bits, &symbols, &literals, &distances);
    }
    bits.align();
    let (mut a, mut b) = (1u32, 0u32);
    for &byte in data {
        a = (a + u32::from(byte)) % 65521;
        b = (b + a) % 65521;
    }
    bits.out.extend((b << 16 | a).to_be_bytes());
    bits.out
}

#[cfg(test)]
mod tests;
