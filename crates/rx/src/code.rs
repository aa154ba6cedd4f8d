//! The codes of aborts that the protocol itself defines.
//!
//! OpenAFS: `src/rx/rx.h`, `src/rxgen/rpc_errors.h`, `src/rxkad/rxkad_errs.et`.

/// The peer does not answer.
pub const CALL_DEAD: i32 = -1;
/// The service or the security class does not exist.
pub const INVALID_OPERATION: i32 = -2;
/// The call took longer than its limit.
pub const CALL_TIMEOUT: i32 = -3;
/// The peer broke the protocol.
pub const PROTOCOL_ERROR: i32 = -5;
/// The program ended the call.
pub const USER_ABORT: i32 = -6;
/// The server is starting, or has no room for the call.
pub const RESTARTING: i32 = -100;
/// The arguments of a call can't be read (`RXGEN_SS_UNMARSHAL`).
pub const SS_UNMARSHAL: i32 = -453;
/// The operation does not exist (`RXGEN_OPCODE`). Clients then try an older one.
pub const OPCODE: i32 = -455;
/// The ticket has expired (`RXKADEXPIRED`).
pub const KAD_EXPIRED: i32 = 19_270_409;
