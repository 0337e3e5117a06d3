//! Choice of one endpoint: ranks endpoints by their place relative to the client, then draws by weight among the best. Pure:
//! the caller brings the endpoints, says which are usable, and brings the randomness.
#![forbid(unsafe_code)]

mod eject;
mod rank;
mod table;

pub use eject::{Ejector, can_spare};
pub use rank::{Mode, Place, Preference, Scope};
pub use table::{Drawn, Table};
