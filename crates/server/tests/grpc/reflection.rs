//! What a client that knows nothing can ask: reflection and health.

use crate::place::Place;

#[tokio::test]
async fn reflection_lists_both_services_and_health_says_serving() {
    use tonic_health::pb::health_check_response::ServingStatus;
    use tonic_health::pb::{HealthCheckRequest, health_client::HealthClient};

    let place = Place::new().await;
    let (jobs, workers) = ("steadfast.v1.Jobs", "steadfast.v1.Workers");
    for service in ["", jobs, workers] {
        let mut health = HealthClient::new(place.channel.clone());
        let request = HealthCheckRequest { service: service.to_owned() };
        let answer = health.check(request).await.expect("known").into_inner();
        assert_eq!(answer.status(), ServingStatus::Serving, "{service}");
    }
    // The two versions have the same shapes, but not the same types.
    macro_rules! services {
        ($version:ident) => {{
            use tonic_reflection::pb::$version::ServerReflectionRequest;
            use tonic_reflection::pb::$version::server_reflection_client::ServerReflectionClient;
            use tonic_reflection::pb::$version::server_reflection_request::MessageRequest;
            use tonic_reflection::pb::$version::server_reflection_response::MessageResponse;
            let message_request = Some(MessageRequest::ListServices(String::new()));
            let request = ServerReflectionRequest { host: String::new(), message_request };
            let mut client = ServerReflectionClient::new(place.channel.clone());
            let answer = client.server_reflection_info(tokio_stream::once(request)).await;
            let answer = answer.expect("answered").into_inner().message().await;
            let answer = answer.expect("an answer").expect("one").message_response;
            let Some(MessageResponse::ListServicesResponse(list)) = answer else {
                panic!("{answer:?} is no list");
            };
            list.service.into_iter().map(|service| service.name).collect::<Vec<String>>()
        }};
    }
    for names in [services!(v1), services!(v1alpha)] {
        for service in [jobs, workers] {
            assert!(names.iter().any(|name| name == service), "{service}: {names:?}");
        }
    }
}
