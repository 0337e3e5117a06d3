//! State of the service that connections share, and the result of one turn of a connection.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use rand::rngs::SmallRng;

use super::reply::{Asked, Course, Date, Setup};
use super::timeouts::Patience;

/// What is spoken at a place to listen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// HTTP of either version, and gRPC.
    Http,
    /// Every byte comes back.
    Echo,
}

/// State that all connections share.
#[derive(Debug)]
pub struct World {
    /// The rules of answers.
    pub echo: Setup,
    /// The source of chance.
    pub random: RefCell<SmallRng>,
    /// The text of the current date.
    pub date: RefCell<Date>,
    /// For a request whose body is read by itself; zero is for ever.
    pub request_timeout: Duration,
}

impl World {
    /// Decides over a request.
    pub fn course(&self, asked: Asked) -> Course {
        Course::of(asked, &self.echo, &mut *self.random.borrow_mut())
    }
}

/// Service state and scratch space for one turn of a connection.
#[derive(Debug)]
pub struct Tools<'a> {
    /// Space to read into.
    pub buffer: &'a mut [u8],
    /// State that all connections share.
    pub world: &'a Rc<World>,
    /// The service is about to end.
    pub stopping: bool,
    /// How many times connections were looked over so far.
    pub round: u32,
    /// How many rounds peers may take.
    pub patience: Patience,
}

/// The wish of a connection after its turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Nothing until something happens to its socket.
    Wait,
    /// Be told when this instant has come.
    WakeAt(Instant),
    /// Be closed.
    Close,
}
