//! Which requests are served.
//!
//! # Theory
//! Any program of the machine can connect to the port, and any page in the browser can send
//! requests to it. Against both:
//!
//! | attack | what stops it |
//! |---|---|
//! | another user of the machine asks for data | the token |
//! | a foreign page sends requests | no cookie, so it has no token; `Origin`, `Sec-Fetch-Site` |
//! | a foreign name resolves to this address (DNS rebinding) | `Host` |
//! | a foreign page shows this one in a frame | the content security policy |
//! | names with markup | the page sets text only; the content security policy |

use hyper::header::{AUTHORIZATION, HOST, HeaderMap, ORIGIN};
use subtle::ConstantTimeEq;

/// Methods that the page may use. None changes anything, or keeps state in the daemon.
pub const METHODS: [&str; 12] = [
    "datasets",
    "events",
    "exports",
    "kstats",
    "mounts",
    "pool",
    "pool_names",
    "slow",
    "top",
    "tunables",
    "txgs",
    "under_way",
];

/// What allows to read: 256 random bits.
pub struct Token(String);

impl Token {
    /// A new one.
    ///
    /// # Errors
    /// The system has no random numbers.
    pub fn new() -> Result<Self, getrandom::Error> {
        let mut bytes = [0; 32];
        getrandom::fill(&mut bytes)?;
        Ok(Self(bytes.iter().map(|byte| format!("{byte:02x}")).collect()))
    }

    /// Its text: 64 hexadecimal digits.
    pub fn text(&self) -> &str {
        &self.0
    }

    /// Whether a request has it, in constant time.
    pub fn allows(&self, headers: &HeaderMap) -> bool {
        let given = headers.get(AUTHORIZATION).map(hyper::header::HeaderValue::as_bytes);
        let given = given.and_then(|value| value.strip_prefix(b"Bearer "));
        given.is_some_and(|given| given.ct_eq(self.0.as_bytes()).into())
    }
}

/// Why a request is refused, whatever it wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Foreign {
    /// `Host` is missing, twice there, or names another machine.
    Host,
    /// `Origin` is another one than the page's.
    Origin,
    /// `Sec-Fetch-Site` says that another site sends it.
    Site,
}

/// The value of a header that is there once.
fn once<'a>(headers: &'a HeaderMap, name: &hyper::header::HeaderName) -> Option<&'a str> {
    let mut all = headers.get_all(name).iter();
    let value = all.next()?.to_str().ok()?;
    all.next().is_none().then_some(value)
}

/// Whether `Host` is the loopback interface. The port may be that of a tunnel.
fn is_local(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    ["127.0.0.1", "localhost", "[::1]"].contains(&name)
}

/// Checks that a request comes from the page itself, or from the user.
///
/// # Errors
/// Why it does not.
pub fn check(headers: &HeaderMap) -> Result<(), Foreign> {
    let host = once(headers, &HOST).filter(|host| is_local(host)).ok_or(Foreign::Host)?;
    if headers.contains_key(ORIGIN) {
        let origin = once(headers, &ORIGIN).and_then(|origin| origin.strip_prefix("http://"));
        if origin != Some(host) {
            return Err(Foreign::Origin);
        }
    }
    let site = hyper::header::HeaderName::from_static("sec-fetch-site");
    if headers.contains_key(&site) && !matches!(once(headers, &site), Some("none" | "same-origin")) {
        return Err(Foreign::Site);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(all: &[(&str, &str)]) -> HeaderMap {
        let name = |name: &str| hyper::header::HeaderName::from_bytes(name.as_bytes()).expect("a name");
        all.iter().map(|(n, value)| (name(n), value.parse().expect("a value"))).collect()
    }

    /// Goal: only requests of the page itself or of the user pass, also through a tunnel with
    /// another port.
    #[test]
    fn origins() {
        let local = ("host", "127.0.0.1:9135");
        for good in [
            &[local][..],
            &[("host", "localhost:7")],
            &[("host", "[::1]:9135")],
            &[("host", "localhost")],
            &[local, ("origin", "http://127.0.0.1:9135"), ("sec-fetch-site", "same-origin")],
            &[local, ("sec-fetch-site", "none")],
        ] {
            assert_eq!(check(&headers(good)), Ok(()), "{good:?}");
        }
        for (bad, why) in [
            (&[][..], Foreign::Host),
            (&[("host", "rebound.example:9135")], Foreign::Host),
            (&[("host", "127.0.0.1.rebound.example")], Foreign::Host),
            (&[("host", "localhost:9135:1")], Foreign::Host),
            (&[("host", "192.168.1.2:9135")], Foreign::Host),
            (&[local, ("host", "rebound.example")], Foreign::Host),
            (&[local, ("origin", "http://other.example")], Foreign::Origin),
            (&[local, ("origin", "http://127.0.0.1:80")], Foreign::Origin),
            (&[local, ("origin", "https://127.0.0.1:9135")], Foreign::Origin),
            (&[local, ("origin", "null")], Foreign::Origin),
            (&[local, ("sec-fetch-site", "cross-site")], Foreign::Site),
            (&[local, ("sec-fetch-site", "same-site")], Foreign::Site),
        ] {
            let mut given = HeaderMap::new();
            for (name, value) in bad {
                given.append(*name, value.parse().expect("a value"));
            }
            assert_eq!(check(&given), Err(why), "{bad:?}");
        }
    }

    /// Goal: a token is long, new each time, and only the whole of it allows.
    #[test]
    fn tokens() {
        let (token, other) = (Token::new().expect("random"), Token::new().expect("random"));
        assert!(token.text().len() == 64 && token.text() != other.text());
        let with = |text: String| token.allows(&headers(&[("authorization", &text)]));
        assert!(with(format!("Bearer {}", token.text())));
        assert!(!with(format!("Bearer {}", other.text())));
        assert!(!with(format!("Bearer {}", &token.text()[1..])));
        assert!(!with(format!("Bearer {}0", token.text())));
        assert!(!with(token.text().to_owned()));
        assert!(!with("Bearer ".to_owned()) && !token.allows(&HeaderMap::new()));
    }

    /// Goal: each method exists, and none that changes anything is among them.
    #[test]
    fn methods_read() {
        for method in METHODS {
            assert!(api::METHODS.contains(&method), "{method}");
        }
        let change = [
            "change",
            "change_pool",
            "create_pool",
            "destroy",
            "export",
            "import",
            "inject",
            "load_key",
            "mount",
            "offer",
            "prefetch",
            "receive_abort",
            "redact",
            "set_tunable",
            "trace",
            "unload_key",
            "unmount",
            "withdraw",
            "attach",
            "detach",
            "afs_enable",
            "afs_disable",
        ];
        assert!(METHODS.iter().all(|method| !change.contains(method)));
    }
}
