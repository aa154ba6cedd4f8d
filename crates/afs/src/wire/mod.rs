//! How values are laid out in calls.
//!
//! # Theory
//! [`Wire`] reads and writes a value by XDR's rules. The bound of a string or list is part of its
//! type: [`Text`], [`Opaque`], [`List`]. So no decoder of a call can forget one, and a list takes
//! memory only if the bytes can hold it.
//!
//! A character takes four bytes in a structure (`char`, `char[n]`), as rxgen makes it. [`Chars`]
//! and [`Flag`] are such.
//!
//! # See
//! [`rx::xdr`]. OpenAFS: `src/rxgen`.

#[cfg(test)]
mod tests;

use rx::xdr::{Reader, Writer};

use crate::types::{DataVersion, Date, Fid, PrincipalId, Unique, Vnode, VolumeId};

/// A value that calls have.
pub trait Wire: Sized {
    /// The smallest size of such a value in bytes.
    const SIZE: usize;

    /// Appends the value.
    fn encode(&self, to: &mut Writer);

    /// Reads a value.
    ///
    /// # Errors
    /// [`rx::Error::Short`], [`rx::Error::TooLong`], [`rx::Error::Nul`].
    fn decode(from: &mut Reader<'_>) -> rx::Result<Self>;

    /// About how many bytes this value takes, for the buffer that it is written to.
    fn size(&self) -> usize {
        Self::SIZE
    }

    /// The value alone, as a server answers with it.
    fn to_bytes(&self) -> Vec<u8> {
        let mut writer = Writer::with_capacity(self.size());
        self.encode(&mut writer);
        writer.finish()
    }

    /// Reads a value that has all of the bytes.
    ///
    /// # Errors
    /// Those of [`Self::decode`]; [`rx::Error::Trailing`].
    fn from_bytes(bytes: &[u8]) -> rx::Result<Self> {
        let mut reader = Reader::new(bytes);
        let value = Self::decode(&mut reader)?;
        reader.finish()?;
        Ok(value)
    }
}

/// Makes structures of fields that follow one another.
macro_rules! wire_struct {
    ($($(#[$doc:meta])* pub struct $name:ident {
        $($(#[$field_doc:meta])* pub $field:ident: $type:ty,)*
    })*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, Default)]
        pub struct $name {
            $($(#[$field_doc])* pub $field: $type,)*
        }

        impl $crate::wire::Wire for $name {
            const SIZE: usize = 0 $(+ <$type as $crate::wire::Wire>::SIZE)*;

            fn encode(&self, _to: &mut ::rx::xdr::Writer) {
                $($crate::wire::Wire::encode(&self.$field, _to);)*
            }

            fn size(&self) -> usize {
                0 $(+ $crate::wire::Wire::size(&self.$field))*
            }

            fn decode(_from: &mut ::rx::xdr::Reader<'_>) -> ::rx::Result<Self> {
                Ok(Self { $($field: $crate::wire::Wire::decode(_from)?,)* })
            }
        }
    )*};
}
pub(crate) use wire_struct;

macro_rules! words {
    ($($type:ident $size:literal,)*) => {$(
        impl Wire for $type {
            const SIZE: usize = $size;

            fn encode(&self, to: &mut Writer) {
                to.$type(*self);
            }

            fn decode(from: &mut Reader<'_>) -> rx::Result<Self> {
                from.$type()
            }
        }
    )*};
}
words! { u32 4, i32 4, u64 8, i64 8, }

macro_rules! numbers {
    ($($name:ident,)*) => {$(
        impl Wire for $name {
            const SIZE: usize = 4;

            fn encode(&self, to: &mut Writer) {
                self.0.encode(to);
            }

            fn decode(from: &mut Reader<'_>) -> rx::Result<Self> {
                Wire::decode(from).map(Self)
            }
        }
    )*};
}
numbers! { VolumeId, Vnode, Unique, DataVersion, Date, PrincipalId, }

impl Wire for Fid {
    const SIZE: usize = 12;

    fn encode(&self, to: &mut Writer) {
        self.volume.encode(to);
        self.vnode.encode(to);
        self.unique.encode(to);
    }

    fn decode(from: &mut Reader<'_>) -> rx::Result<Self> {
        Ok(Self { volume: Wire::decode(from)?, vnode: Wire::decode(from)?, unique: Wire::decode(from)? })
    }
}

/// A reply without a value.
impl Wire for () {
    const SIZE: usize = 0;

    fn encode(&self, _: &mut Writer) {}

    fn decode(_: &mut Reader<'_>) -> rx::Result<Self> {
        Ok(())
    }
}

/// A number without a sign in 16 bits. It takes four bytes (`short`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Short(pub u16);

impl Wire for Short {
    const SIZE: usize = 4;

    fn encode(&self, to: &mut Writer) {
        to.u32(self.0.into());
    }

    fn decode(from: &mut Reader<'_>) -> rx::Result<Self> {
        from.u32().map(|word| Self(word as u16))
    }
}

/// A character of a structure that is a number or a truth value. It takes four bytes (`char`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Flag(pub u8);

impl Wire for Flag {
    const SIZE: usize = 4;

    fn encode(&self, to: &mut Writer) {
        to.u32(self.0.into());
    }

    fn decode(from: &mut Reader<'_>) -> rx::Result<Self> {
        // A character with a sign comes as a word with that sign.
        from.u32().map(|word| Self(word as u8))
    }
}

/// A string in a field of `N` characters, each in four bytes (`char[N]`).
///
/// It ends at its first NUL. One that is too long is cut.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Chars<const N: usize>(Vec<u8>);

impl<const N: usize> Chars<N> {
    /// The string of these bytes, up to a NUL, and `N - 1` bytes at most.
    pub fn new(bytes: &[u8]) -> Self {
        let kept = &bytes[..bytes.len().min(N.saturating_sub(1))];
        let length = kept.iter().position(|byte| *byte == 0).unwrap_or(kept.len());
        Self(kept[..length].to_vec())
    }

    /// The bytes of the string.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl<const N: usize> Wire for Chars<N> {
    const SIZE: usize = 4 * N;

    fn encode(&self, to: &mut Writer) {
        let fill = std::iter::repeat_n(&0, N - self.0.len());
        // A character above 127 is negative.
        self.0.iter().chain(fill).for_each(|byte| _ = to.i32(i32::from(byte.cast_signed())));
    }

    fn decode(from: &mut Reader<'_>) -> rx::Result<Self> {
        let words = from.fixed(4 * N)?;
        let bytes: Vec<u8> = words.chunks_exact(4).map(|word| word[3]).collect();
        Ok(Self::new(&bytes))
    }
}

/// A string of `MAX` bytes at most, in no particular encoding (`string<MAX>`).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Text<const MAX: usize>(Vec<u8>);

impl<const MAX: usize> Text<MAX> {
    /// The string of these bytes. `None`: there are too many, or a NUL is inside.
    pub fn new(bytes: impl Into<Vec<u8>>) -> Option<Self> {
        let bytes = bytes.into();
        (bytes.len() <= MAX && !bytes.contains(&0)).then_some(Self(bytes))
    }

    /// The bytes of the string.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl<const MAX: usize> Wire for Text<MAX> {
    const SIZE: usize = 4;

    fn encode(&self, to: &mut Writer) {
        to.opaque(&self.0);
    }

    fn decode(from: &mut Reader<'_>) -> rx::Result<Self> {
        from.string(MAX).map(|bytes| Self(bytes.to_vec()))
    }
}

/// Bytes with their length, `MAX` at most (`opaque<MAX>`).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Opaque<const MAX: usize>(Vec<u8>);

impl<const MAX: usize> Opaque<MAX> {
    /// These bytes. `None`: there are too many.
    pub fn new(bytes: impl Into<Vec<u8>>) -> Option<Self> {
        let bytes = bytes.into();
        (bytes.len() <= MAX).then_some(Self(bytes))
    }

    /// The bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl<const MAX: usize> Wire for Opaque<MAX> {
    const SIZE: usize = 4;

    fn encode(&self, to: &mut Writer) {
        to.opaque(&self.0);
    }

    fn decode(from: &mut Reader<'_>) -> rx::Result<Self> {
        from.opaque(MAX).map(|bytes| Self(bytes.to_vec()))
    }
}

/// A list of `MAX` values at most, with its length before it (`T<MAX>`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct List<T, const MAX: usize>(Vec<T>);

impl<T, const MAX: usize> Default for List<T, MAX> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T, const MAX: usize> List<T, MAX> {
    /// A list of these values. `None`: there are too many.
    pub fn new(values: Vec<T>) -> Option<Self> {
        (values.len() <= MAX).then_some(Self(values))
    }

    /// The values.
    pub fn into_vec(self) -> Vec<T> {
        self.0
    }
}

impl<T, const MAX: usize> std::ops::Deref for List<T, MAX> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.0
    }
}

impl<T: Wire, const MAX: usize> Wire for List<T, MAX> {
    const SIZE: usize = 4;

    fn encode(&self, to: &mut Writer) {
        to.u32(u32::try_from(self.0.len()).expect("lists of calls are short"));
        self.0.iter().for_each(|value| value.encode(to));
    }

    fn size(&self) -> usize {
        Self::SIZE + self.0.len() * T::SIZE
    }

    fn decode(from: &mut Reader<'_>) -> rx::Result<Self> {
        let count = from.array(MAX, T::SIZE)?;
        (0..count).map(|_| T::decode(from)).collect::<rx::Result<_>>().map(Self)
    }
}

/// A fixed number of values (`T[N]`).
impl<T: Wire + Default + Copy, const N: usize> Wire for [T; N] {
    const SIZE: usize = N * T::SIZE;

    fn encode(&self, to: &mut Writer) {
        self.iter().for_each(|value| value.encode(to));
    }

    fn decode(from: &mut Reader<'_>) -> rx::Result<Self> {
        let mut values = [T::default(); N];
        for value in &mut values {
            *value = T::decode(from)?;
        }
        Ok(values)
    }
}

/// A number that names a host or its interface (`afsUUID`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Uuid(pub [u8; 16]);

impl std::fmt::Display for Uuid {
    /// As `vos listaddrs -printuuid` shows it.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        const GROUPS: [std::ops::Range<usize>; 6] = [0..4, 4..6, 6..8, 8..9, 9..10, 10..16];
        for (at, group) in GROUPS.into_iter().enumerate() {
            f.write_str(if at == 0 { "" } else { "-" })?;
            self.0[group].iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
        }
        Ok(())
    }
}

impl Wire for Uuid {
    const SIZE: usize = 44;

    fn encode(&self, to: &mut Writer) {
        let bytes = &self.0;
        to.u32(u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]));
        to.u32(u16::from_be_bytes([bytes[4], bytes[5]]).into());
        to.u32(u16::from_be_bytes([bytes[6], bytes[7]]).into());
        for byte in &bytes[8..] {
            to.i32(byte.cast_signed().into());
        }
    }

    fn decode(from: &mut Reader<'_>) -> rx::Result<Self> {
        let mut bytes = [0; 16];
        bytes[..4].copy_from_slice(&from.u32()?.to_be_bytes());
        for at in [4, 6] {
            bytes[at..at + 2].copy_from_slice(&(from.u32()? as u16).to_be_bytes());
        }
        for byte in &mut bytes[8..] {
            *byte = from.u32()? as u8;
        }
        Ok(Self(bytes))
    }
}
