//! The traits of other libraries. Each file needs the feature of its name.

#[cfg(feature = "futures-io")]
mod futures_io;
#[cfg(feature = "futures-sink")]
mod futures_sink;
#[cfg(feature = "futures-core")]
mod futures_stream;
#[cfg(feature = "hyper")]
mod hyper_rt;
#[cfg(feature = "tokio")]
mod tokio_io;
