//! The gRPC service and its client.

use crate::Serving;
use heist_ecosystem::serve::Limits;
use hyper_util::service::TowerToHyperService;
use tonic::Code;

#[allow(dead_code, reason = "its main is not called")]
#[path = "../../examples/grpc.rs"]
mod example;

#[heist::test(unsafe, procs = [1, 2, 4])]
fn calls_and_streams_are_answered() {
    let server = Serving::start(TowerToHyperService::new(example::Sums), Limits::default());
    let sums = example::SumsClient::new(server.url("").parse().unwrap());
    heist::block_on(async {
        assert_eq!(sums.add(2, 3).await.unwrap(), 5);
        let error = sums.add(i64::MAX, 1).await.unwrap_err();
        assert_eq!(error.code(), Code::OutOfRange);
        // Longer than the windows of HTTP/2.
        let values = sums.count(1, 50_000).await.unwrap();
        assert!(values.into_iter().eq(1..=50_000));
    });
    // Many calls share one connection.
    let calls: Vec<_> = (0..100)
        .map(|i| {
            let sums = sums.clone();
            heist::spawn(async move { sums.add(i, i).await.unwrap() })
        })
        .collect();
    for (i, call) in (0..).zip(calls) {
        assert_eq!(call.join().unwrap(), 2 * i);
    }
    drop(sums);
    assert_eq!(server.stop().cut_off, 0);
}
