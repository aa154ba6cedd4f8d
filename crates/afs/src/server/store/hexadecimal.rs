//! Bytes as text, in properties.

/// The digits of bytes.
pub(super) fn hexadecimal(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// The bytes of digits; `None`: it has others.
pub(super) fn from_hexadecimal(text: &str) -> Option<Vec<u8>> {
    let digits = text.as_bytes();
    let digit = |byte: u8| char::from(byte).to_digit(16).map(|digit| digit as u8);
    let pairs = digits.chunks(2).map(|pair| match *pair {
        [high, low] => Some(digit(high)? << 4 | digit(low)?),
        _ => None,
    });
    pairs.collect()
}

#[cfg(test)]
mod tests {
    use super::{from_hexadecimal, hexadecimal};

    /// Goal: the text of a header gives its bytes back, and other text gives none.
    #[test]
    fn hexadecimal_text() {
        let bytes: Vec<u8> = (0..=255).collect();
        assert_eq!(from_hexadecimal(&hexadecimal(&bytes)), Some(bytes));
        assert_eq!(
            [from_hexadecimal("0"), from_hexadecimal("0g"), from_hexadecimal("é")],
            [None, None, None]
        );
    }
}
