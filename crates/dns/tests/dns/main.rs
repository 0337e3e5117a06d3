//! The crate from outside: a question's bytes in, a reply's bytes out.

mod answers;
mod messages;
mod properties;
mod support;
