//! The codes of rxkad (`src/rxkad/rxkad_errs.et`).

/// The class is used in a way that it does not have.
pub const INCONSISTENCY: i32 = 19_270_400;
/// A challenge, response or packet is too short.
pub const PACKET_SHORT: i32 = 19_270_401;
/// The level is too low, or does not exist.
pub const LEVEL_FAIL: i32 = 19_270_402;
/// The ticket is too long or too short.
pub const TICKET_LENGTH: i32 = 19_270_403;
/// The response answers another challenge.
pub const OUT_OF_SEQUENCE: i32 = 19_270_404;
/// The client has not proved itself.
pub const NO_AUTH: i32 = 19_270_405;
/// The key is weak or of no use.
pub const BAD_KEY: i32 = 19_270_406;
/// The ticket is damaged.
pub const BAD_TICKET: i32 = 19_270_407;
/// The cell has no key of this version and type.
pub const UNKNOWN_KEY: i32 = 19_270_408;
/// The ticket has expired.
pub const EXPIRED: i32 = 19_270_409;
/// The encrypted data contradict the packet.
pub const SEALED_INCONSISTENT: i32 = 19_270_410;
/// The packet claims more data than it has.
pub const DATA_LENGTH: i32 = 19_270_411;
