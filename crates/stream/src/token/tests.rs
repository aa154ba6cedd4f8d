use super::*;

/// A token that OpenZFS 2.3.2 made.
const TOKEN: &str = "1-d3e607288-b8-789c636064000310a500c4ec50360710e72765a52697303004409460caa7a515a79630c001489\
                     e0d493ea9b224b518483be8d660d55f929f5e9a99c2c0b073b5deeeebeceaba1a48f29c60f9bcc4dc540686e2d4\
                     bc14dde2a264fdb4628744a85d0012ac16b0";

/// Goal: a token of OpenZFS has the fields that OpenZFS shows of it.
#[test]
fn a_real_token() {
    let list = decode(TOKEN).unwrap();
    assert_eq!(
        format!("{list:5}"),
        "     object: 80\n     offset: 0\n     bytes: 8138048\n     toguid: 3253577878938233785\n     toname: 'send-src/fs@a'\n"
    );
}

/// Goal: each way to spoil a token has its own error.
#[test]
fn spoiled_tokens() {
    let with = |from: &str, to: &str| decode(&TOKEN.replacen(from, to, 1));
    assert_eq!(decode(""), Err(TokenError::Format));
    assert_eq!(decode("1-2-3"), Err(TokenError::Format));
    assert_eq!(with("1-d", "x-d"), Err(TokenError::Format));
    assert_eq!(with("1-d", "7-d"), Err(TokenError::Version(7)));
    assert_eq!(with("789c", "78zz"), Err(TokenError::Hex));
    assert_eq!(with("789c", "788c"), Err(TokenError::Checksum));
    assert_eq!(with("-b8-", "-b7-"), Err(TokenError::Decompression));
    assert_eq!(with("-b8-", "-ffffffffffffffff-"), Err(TokenError::Decompression));
    assert_eq!(decode(&TOKEN[..TOKEN.len() - 8]), Err(TokenError::Checksum));
}
