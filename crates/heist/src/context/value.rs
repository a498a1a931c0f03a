//! The values that go along with a context.

use std::any::{Any, TypeId};
use std::sync::Arc;

/// Names a value of a context: a type of its own for each, so that two libraries cannot mean the
/// same one by accident. See [`Context::with_value`](super::Context::with_value).
pub trait Key: 'static {
    /// The type of the value.
    type Value: Send + Sync + 'static;
}

/// One value, and those it was added to.
pub(super) struct Values<V: ?Sized = dyn Any + Send + Sync> {
    rest: Option<Arc<Values>>,
    key: TypeId,
    value: V,
}

impl<V: ?Sized> Drop for Values<V> {
    fn drop(&mut self) {
        // One after the other: a chain may be longer than a stack is deep. Who is not the last to
        // share one leaves it, and all behind it, to the last.
        let mut rest = self.rest.take();
        while let Some(last) = rest.as_mut().and_then(Arc::get_mut) {
            let next = last.rest.take();
            // Drops that one, without what was behind it.
            rest = next;
        }
    }
}

impl Values {
    pub(super) fn with<K: Key>(rest: Option<Arc<Self>>, value: K::Value) -> Arc<Self> {
        Arc::new(Values { rest, key: TypeId::of::<K>(), value })
    }

    pub(super) fn find<K: Key>(&self) -> Option<&K::Value> {
        let chain = std::iter::successors(Some(self), |values| values.rest.as_deref());
        let found = chain.into_iter().find(|values| values.key == TypeId::of::<K>())?;
        found.value.downcast_ref()
    }
}
