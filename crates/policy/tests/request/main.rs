//! L7 policies from outside: policies and requests in, decisions out.

mod cves;
mod decisions;
mod fields;
mod reference;
mod support;
mod templates;
mod tokens;
