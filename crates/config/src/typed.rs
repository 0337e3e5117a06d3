//! Look-ups of resources whose kinds other crates declare.

use lateen_types::Strng;

use crate::resource::Resource;
use crate::{Kind, Snapshot};

impl Snapshot {
    /// The resource of this kind and name, for kinds with [`Parser::of::<T>`](crate::Parser::of). A look-up costs a dynamic
    /// cast. Work that is done for each connection or request looks its resources up once a generation and keeps them.
    pub fn resource<T: Resource>(&self, kind: &Kind, name: &str) -> Option<&T> {
        self.typed.get(kind)?.get(name)?.get()
    }

    /// The resources of this kind by name, for kinds with [`Parser::of::<T>`](crate::Parser::of).
    pub fn resources<T: Resource>(&self, kind: &Kind) -> impl Iterator<Item = (&Strng, &T)> {
        let table = self.typed.get(kind).into_iter().flatten();
        table.filter_map(|(name, entry)| Some((name, entry.get()?)))
    }
}
