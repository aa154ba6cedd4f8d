//! JSON as OpenZFS prints it (`nvlist_print_json`): compact, keys in the order of insertion.
//!
//! An object is an nvlist with unique names. Adding a key again removes the old pair and puts the
//! new one at the end.

/// A JSON value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Json {
    /// Text.
    Text(String),
    /// A number.
    Number(u64),
    /// A finite number that is no integer, in its form in JSON.
    Decimal(String),
    /// A flag.
    Bool(bool),
    /// A list of texts.
    Texts(Vec<String>),
    /// An object.
    Object(Object),
    /// A list of objects.
    Objects(Vec<Object>),
}

/// A JSON object, as an nvlist prints.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Object(Vec<(String, Json)>);

impl Object {
    /// An empty object.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a pair at the end, and removes an earlier pair of the same name.
    pub fn put(&mut self, key: impl Into<String>, value: Json) {
        let key = key.into();
        if let Some(at) = self.0.iter().position(|(k, _)| *k == key) {
            self.0.remove(at);
        }
        self.0.push((key, value));
    }

    /// Adds a pair whose name is known to be new. Does not look for an earlier pair.
    pub fn push(&mut self, key: impl Into<String>, value: Json) {
        self.0.push((key.into(), value));
    }

    /// Adds text.
    pub fn text(&mut self, key: impl Into<String>, value: impl Into<String>) {
        self.put(key, Json::Text(value.into()));
    }

    /// Adds a number.
    pub fn number(&mut self, key: impl Into<String>, value: u64) {
        self.put(key, Json::Number(value));
    }

    /// Adds a number that may have a fraction, unless it is infinite or not a number.
    pub fn decimal(&mut self, key: impl Into<String>, value: f64) {
        if value.is_finite() {
            self.put(key, Json::Decimal(value.to_string()));
        }
    }

    /// Adds a number, as a number if `as_int` is set and otherwise as text.
    pub fn int(&mut self, key: impl Into<String>, value: u64, as_int: bool) {
        self.put(key, if as_int { Json::Number(value) } else { Json::Text(value.to_string()) });
    }

    /// Adds an object.
    pub fn object(&mut self, key: impl Into<String>, value: Object) {
        self.put(key, Json::Object(value));
    }

    /// Whether the object has no pairs.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The object as one line, without a newline.
    pub fn line(&self) -> String {
        let mut s = String::new();
        self.write(&mut s);
        s
    }

    fn write(&self, s: &mut String) {
        s.push('{');
        for (i, (k, v)) in self.0.iter().enumerate() {
            if i > 0 {
                s.push(',');
            }
            write_text(s, k);
            s.push(':');
            match v {
                Json::Text(t) => write_text(s, t),
                Json::Number(n) => s.push_str(&n.to_string()),
                Json::Decimal(n) => s.push_str(n),
                Json::Bool(b) => s.push_str(if *b { "true" } else { "false" }),
                Json::Texts(ts) => {
                    s.push('[');
                    for (i, t) in ts.iter().enumerate() {
                        if i > 0 {
                            s.push(',');
                        }
                        write_text(s, t);
                    }
                    s.push(']');
                }
                Json::Object(o) => o.write(s),
                Json::Objects(objects) => {
                    s.push('[');
                    for (i, object) in objects.iter().enumerate() {
                        if i > 0 {
                            s.push(',');
                        }
                        object.write(s);
                    }
                    s.push(']');
                }
            }
        }
        s.push('}');
    }
}

/// Writes text in 7-bit ASCII.
///
/// OpenZFS drops characters beyond the basic multilingual plane; here they become surrogate pairs.
fn write_text(s: &mut String, t: &str) {
    s.push('"');
    for c in t.chars() {
        match c {
            '"' => s.push_str("\\\""),
            '\\' => s.push_str("\\\\"),
            '\n' => s.push_str("\\n"),
            '\r' => s.push_str("\\r"),
            '\t' => s.push_str("\\t"),
            '\x0c' => s.push_str("\\f"),
            '\x08' => s.push_str("\\b"),
            ' '..='\x7f' => s.push(c),
            _ => {
                let mut units = [0; 2];
                for u in c.encode_utf16(&mut units) {
                    s.push_str(&format!("\\u{u:04x}"));
                }
            }
        }
    }
    s.push('"');
}

/// The first pair of every answer: the command's name and the schema's version.
pub fn schema(command: &str) -> Object {
    let mut v = Object::new();
    v.text("command", command);
    v.number("vers_major", 0);
    v.number("vers_minor", 1);
    let mut o = Object::new();
    o.object("output_version", v);
    o
}

#[cfg(test)]
mod tests {
    //! The rules of nvlists.

    use super::*;

    /// Goal: pairs stay in order of insertion, and a name that is added again moves to the end.
    #[test]
    fn unique_names_move() {
        let mut o = schema("zpool list");
        o.text("a", "1");
        o.int("b", 2, true);
        o.int("a", 3, false);
        assert_eq!(
            o.line(),
            r#"{"output_version":{"command":"zpool list","vers_major":0,"vers_minor":1},"b":2,"a":"3"}"#
        );
    }

    /// Goal: text is 7-bit ASCII and parses back.
    #[test]
    fn escapes() {
        let mut o = Object::new();
        o.text("k\"", "a\\\t\u{1}é😀");
        assert_eq!(o.line(), r#"{"k\"":"a\\\t\u0001\u00e9\ud83d\ude00"}"#);
    }
}
