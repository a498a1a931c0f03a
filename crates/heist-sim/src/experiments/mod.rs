//! Questions to the model.
