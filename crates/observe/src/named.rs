//! Enums whose values have names.

/// Defines an enum whose values have names.
macro_rules! named {
    ($(#[$about:meta])* $enum:ident { $($(#[$meta:meta])* $value:ident $name:literal,)* }) => {
        $(#[$about])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum $enum { $($(#[$meta])* $value,)* }

        impl $enum {
            /// All of them, in order.
            pub const ALL: &'static [Self] = &[$(Self::$value,)*];

            /// Its name in lower case.
            pub fn name(self) -> &'static str {
                match self { $(Self::$value => $name,)* }
            }
        }
    };
}
