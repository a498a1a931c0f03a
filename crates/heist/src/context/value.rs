//! The values that a context carries.

use std::any::{Any, TypeId};
use std::sync::Arc;

/// Names a value of a context. Each value has its own key type, so that two libraries cannot use
/// the same key by accident. See [`Context::with_value`](super::Context::with_value).
pub trait Key: 'static {
    /// The type of the value.
    type Value: Send + Sync + 'static;
}

/// One value, and the values of the context it was added to.
pub(super) struct Values<V: ?Sized = dyn Any + Send + Sync> {
    rest: Option<Arc<Values>>,
    key: TypeId,
    value: V,
}

impl<V: ?Sized> Drop for Values<V> {
    fn drop(&mut self) {
        // One after the other, not recursively: a chain may be too long for the stack. A value that
        // has another owner, and all values behind it, are left to that owner.
        let mut rest = self.rest.take();
        while let Some(last) = rest.as_mut().and_then(Arc::get_mut) {
            let next = last.rest.take();
            // Drops one value, without those behind it.
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
