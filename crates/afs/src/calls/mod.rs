//! The calls of AFS's services: their arguments and replies.
//!
//! # Theory
//! A request is an operation's number and its arguments. Each service has an enum of its calls and
//! one of their replies. A server decodes calls and encodes replies, and a client the reverse. So
//! both sides, and the tests, share one list.
//!
//! Some calls carry data besides:
//!
//! | calls | on the wire |
//! | --- | --- |
//! | FetchData, Dump, … | the data come before the reply |
//! | StoreData, Restore | the data follow the arguments, whose size is fixed |
//!
//! The data are not part of this module. [`fileserver::Call::size_before_data`] says where they
//! begin.
//!
//! A decoder checks each length against its limit before it takes memory. It refuses bytes after
//! the last argument.
//!
//! | module | service | port | role |
//! | --- | --- | --- | --- |
//! | [`fileserver`] | 1 | 7000 | server |
//! | [`volserver`] | 4 | 7005 | server, and client of others |
//! | [`callback`] | 1 | 7001 | client |
//! | [`ptserver`] | 73 | 7002 | client |
//! | [`vlserver`] | 52 | 7003 | client |
//!
//! # See
//! OpenAFS: `src/fsint/afsint.xg`, `src/fsint/afscbint.xg`, `src/volser/volint.xg`.

pub mod callback;
pub mod fileserver;
pub mod ptserver;
#[cfg(test)]
mod tests;
pub mod vlserver;
pub mod volserver;

/// Makes the enums of a service's calls and replies.
///
/// `with data` marks a call whose arguments are followed by data.
macro_rules! calls {
    ($($(#[$doc:meta])* $call:ident = $opcode:literal $(with $data:ident)? {
        $($field:ident: $type:ty),* $(,)?
    } -> $reply:ty,)*) => {
        /// A call with its arguments.
        #[derive(Debug, Clone, PartialEq, Eq)]
        #[allow(missing_docs, reason = "the arguments have the names of their types' fields")]
        pub enum Call {
            $($(#[$doc])*
            #[doc = ""]
            #[doc = concat!("The reply is [`Reply::", stringify!($call), "`].")]
            $call { $($field: $type),* },)*
        }

        impl Call {
            /// The numbers and names of all calls.
            pub const ALL: &[(u32, &str)] = &[$(($opcode, stringify!($call)),)*];

            /// The number of the operation.
            pub fn opcode(&self) -> u32 {
                match self {
                    $(Self::$call { .. } => $opcode,)*
                }
            }

            /// The name of an operation.
            pub fn name(opcode: u32) -> Option<&'static str> {
                match opcode {
                    $($opcode => Some(stringify!($call)),)*
                    _ => None,
                }
            }

            /// The size of the arguments of a call whose data follow them. `None`: nothing follows
            /// the arguments of this call.
            pub fn size_before_data(opcode: u32) -> Option<usize> {
                match opcode {
                    $($opcode => {
                        let size = 0 $(+ <$type as $crate::wire::Wire>::SIZE)*;
                        [$(stringify!($data))?].first().map(|_: &&str| size)
                    })*
                    _ => None,
                }
            }

            /// The call with this number and these arguments.
            ///
            /// # Errors
            /// * [`crate::Error::Opcode`]: the service has no such call (RXGEN_OPCODE).
            /// * [`crate::Error::Arguments`]: the arguments are damaged (RXGEN_SS_UNMARSHAL).
            pub fn decode(opcode: u32, arguments: &[u8]) -> $crate::Result<Self> {
                let mut from = ::rx::xdr::Reader::new(arguments);
                let call = match opcode {
                    $($opcode => Self::decode_front(opcode, &mut from),)*
                    _ => return Err($crate::Error::Opcode { opcode }),
                };
                let call = call.and_then(|call| from.finish().map(|()| call));
                call.map_err(|source| $crate::Error::Arguments { opcode, source })
            }

            fn decode_front(opcode: u32, _from: &mut ::rx::xdr::Reader<'_>) -> ::rx::Result<Self> {
                match opcode {
                    $($opcode => Ok(Self::$call {
                        $($field: $crate::wire::Wire::decode(_from)?,)*
                    }),)*
                    _ => unreachable!("decode knows the number"),
                }
            }

            /// The request: the number and the arguments.
            pub fn request(&self) -> Vec<u8> {
                let mut _to = ::rx::xdr::Writer::new();
                _to.u32(self.opcode());
                match self {
                    $(Self::$call { $($field),* } => {
                        $($crate::wire::Wire::encode($field, &mut _to);)*
                    })*
                }
                _to.finish()
            }
        }

        /// The reply to a call that succeeded.
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub enum Reply {
            $(#[doc = concat!("The reply to [`Call::", stringify!($call), "`].")]
            $call($reply),)*
        }

        impl Reply {
            /// The bytes of the reply.
            pub fn encode(&self) -> Vec<u8> {
                match self {
                    $(Self::$call(reply) => $crate::wire::Wire::to_bytes(reply),)*
                }
            }

            /// The reply to the call with this number.
            ///
            /// # Errors
            /// * [`crate::Error::Opcode`]: the service has no such call.
            /// * [`crate::Error::Arguments`]: the reply is damaged.
            pub fn decode(opcode: u32, bytes: &[u8]) -> $crate::Result<Self> {
                let reply = match opcode {
                    $($opcode => <$reply as $crate::wire::Wire>::from_bytes(bytes).map(Self::$call),)*
                    _ => return Err($crate::Error::Opcode { opcode }),
                };
                reply.map_err(|source| $crate::Error::Arguments { opcode, source })
            }
        }
    };
}
use calls;
