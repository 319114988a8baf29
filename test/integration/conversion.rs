//! Custom resource definitions and conversion, as a real API server takes them.

use std::fs;
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Client, CustomResourceExt};
use mzcompose::control_plane::ControlPlane;
use orchestratord::api::Balancer;
use orchestratord::api::materialize::convert::Version;
use orchestratord::api::materialize::rollout_hash::RolloutHash;
use orchestratord::api::materialize::{v1, v1alpha1};
use orchestratord::api::registration::{
    Conversion, ConversionClient, RegistrationError, crds, register, trust_only,
};
use orchestratord::metrics::Metrics;
use orchestratord::webhook::{Webhook, WebhookConfig};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::time::{Instant, sleep};

const NAMESPACE: &str = "default";
const LIMIT: Duration = Duration::from_secs(60);
const REQUEST: &str = "5b0f3c2e-6f0a-4d0e-9a55-0f1f6a0d9a11";

/// A control plane with the definitions registered and the webhook served.
struct Fixture {
    _control_plane: ControlPlane,
    client: Client,
    webhook: Webhook,
    _certificate: TempDir,
}

impl Fixture {
    async fn start() -> Self {
        let control_plane = ControlPlane::private().await.unwrap();
        let client = control_plane.access().client().await.unwrap();
        let certificate = certificate();
        let webhook = serve(&certificate).await;
        let fixture = Self {
            _control_plane: control_plane,
            client,
            webhook,
            _certificate: certificate,
        };
        fixture.register(true).await.unwrap();
        fixture.until_served(Version::V1).await;
        fixture
    }

    async fn register(&self, v1: bool) -> Result<(), RegistrationError> {
        let url = format!("https://{}/convert", self.webhook.local_addr());
        let ca = self.webhook.ca().borrow().clone();
        let conversion = v1.then(|| Conversion::new(ConversionClient::Url(url), ca));
        register(&self.client, &crds(conversion.as_ref(), &[])).await
    }

    /// Established does not mean that every path of the API server serves the version already.
    async fn until_served(&self, version: Version) {
        let deadline = Instant::now() + LIMIT;
        while let Err(error) = self.api(version).list(&Default::default()).await {
            assert!(
                Instant::now() < deadline,
                "{version} is not served: {error}"
            );
            sleep(Duration::from_millis(50)).await;
        }
    }

    fn api(&self, version: Version) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), NAMESPACE, &resource(version))
    }

    async fn get(&self, version: Version, name: &str) -> Value {
        serde_json::to_value(self.api(version).get(name).await.unwrap()).unwrap()
    }

    async fn request(&self, name: &str) -> Value {
        self.get(Version::V1alpha1, name).await["spec"]["requestRollout"].clone()
    }

    async fn create(&self, version: Version, name: &str, spec: Value) {
        let object = DynamicObject::new(name, &resource(version)).data(json!({"spec": spec}));
        let api = self.api(version);
        api.create(&PostParams::default(), &object).await.unwrap();
    }

    async fn apply(
        &self,
        version: Version,
        name: &str,
        manager: &str,
        force: bool,
        spec: Value,
    ) -> kube::Result<Value> {
        let object = DynamicObject::new(name, &resource(version)).data(json!({"spec": spec}));
        let mut params = PatchParams::apply(manager);
        params.force = force;
        let applied = self
            .api(version)
            .patch(name, &params, &Patch::Apply(&object))
            .await?;
        Ok(serde_json::to_value(applied).unwrap())
    }

    /// Creates an object at v1alpha1 whose rollout is completed.
    async fn create_settled(&self, name: &str) {
        let spec = spec_with(json!({"requestRollout": REQUEST}));
        self.create(Version::V1alpha1, name, spec).await;
        self.settle(name).await;
    }

    /// Marks the only rollout as completed, as the controller does.
    async fn settle(&self, name: &str) {
        let request = self.request(name).await;
        let status = json!({"status": {
            "resourceId": "abcdefghij",
            "activeGeneration": 1,
            "lastCompletedRolloutRequest": request,
            "resourcesHash": "r",
            "conditions": [],
        }});
        let api = self.api(Version::V1alpha1);
        api.patch_status(name, &PatchParams::default(), &Patch::Merge(&status))
            .await
            .unwrap();
    }
}

fn resource(version: Version) -> ApiResource {
    let kind = GroupVersionKind::gvk("materialize.cloud", version.name(), "Materialize");
    ApiResource::from_gvk_with_plural(&kind, "materializes")
}

/// A webhook's CA, certificate and key.
pub fn certificate() -> TempDir {
    let mut params = CertificateParams::new([]).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let ca = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let leaf = CertificateParams::new(["127.0.0.1".to_owned()])
        .unwrap()
        .signed_by(&key, &ca)
        .unwrap();
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("ca.crt"), ca.pem()).unwrap();
    fs::write(dir.path().join("tls.crt"), leaf.pem()).unwrap();
    fs::write(dir.path().join("tls.key"), key.serialize_pem()).unwrap();
    dir
}

async fn serve(certificate: &TempDir) -> Webhook {
    let config = WebhookConfig {
        address: "127.0.0.1:0".parse().unwrap(),
        name: "127.0.0.1".try_into().unwrap(),
        cert: certificate.path().join("tls.crt"),
        key: certificate.path().join("tls.key"),
        ca: certificate.path().join("ca.crt"),
        reload_interval: Duration::from_secs(2),
    };
    Webhook::start(config, Metrics::new().unwrap())
        .await
        .unwrap()
}

fn spec() -> Value {
    json!({"environmentdImageRef": "materialize/environmentd:v26.40.0", "backendSecretName": "mz-backend"})
}

fn spec_with(members: Value) -> Value {
    let mut spec = spec();
    let members: serde_json::Map<String, Value> = serde_json::from_value(members).unwrap();
    spec.as_object_mut().unwrap().extend(members);
    spec
}

fn hash(object: &Value) -> RolloutHash {
    let spec: v1::MaterializeSpec = serde_json::from_value(object["spec"].clone()).unwrap();
    RolloutHash::of(&spec, None)
}

#[tokio::test]
async fn what_is_written_at_one_version_is_read_at_the_other() {
    let fixture = Fixture::start().await;
    let stored = json!({"requestRollout": REQUEST, "environmentdIamRoleArn": "arn", "podLabels": {"team": "data"}});
    fixture
        .create(Version::V1alpha1, "old", spec_with(stored))
        .await;
    let read = fixture.get(Version::V1, "old").await;
    assert_eq!(read["apiVersion"], "materialize.cloud/v1");
    assert_eq!(read["spec"].get("requestRollout"), None);
    assert_eq!(read["spec"]["podLabels"], json!({"team": "data"}));
    assert_eq!(
        read["spec"]["serviceAccountAnnotations"],
        json!({"eks.amazonaws.com/role-arn": "arn"})
    );
    assert_eq!(fixture.request("old").await, REQUEST);

    let nulls = json!({"forcePromote": null, "internalCertificateSpec": {"duration": null}, "enableRbac": null});
    fixture.create(Version::V1, "new", spec_with(nulls)).await;
    let read = fixture.get(Version::V1, "new").await;
    assert_eq!(
        fixture.request("new").await,
        hash(&read).request_id().to_string()
    );
    let typed: Api<v1alpha1::Materialize> = Api::namespaced(fixture.client.clone(), NAMESPACE);
    assert_eq!(typed.get("new").await.unwrap().spec.force_promote, "");
}

#[tokio::test]
async fn an_unchanged_write_at_v1_changes_no_request() {
    let fixture = Fixture::start().await;
    fixture
        .apply(Version::V1, "demo", "gitops", false, spec())
        .await
        .unwrap();
    fixture.settle("demo").await;
    let request = fixture.request("demo").await;
    fixture
        .apply(Version::V1, "demo", "gitops", false, spec())
        .await
        .unwrap();
    let after = fixture.get(Version::V1alpha1, "demo").await;
    assert_eq!(after["spec"]["requestRollout"], request);
    assert_eq!(after["status"]["lastCompletedRolloutRequest"], request);
    assert_eq!(after["status"]["resourcesHash"], "r");
    let read = fixture.get(Version::V1, "demo").await;
    assert_eq!(
        read["status"]["lastCompletedRolloutHash"],
        hash(&read).as_str()
    );
    assert_eq!(read["status"]["requestedRolloutHash"], hash(&read).as_str());

    let env = json!({"environmentdExtraEnv": [{"name": "A", "value": "1"}]});
    fixture
        .apply(Version::V1, "demo", "gitops", false, spec_with(env))
        .await
        .unwrap();
    let after = fixture.get(Version::V1alpha1, "demo").await;
    assert_ne!(after["spec"]["requestRollout"], request);
    assert_eq!(after["status"]["lastCompletedRolloutRequest"], request);
}

/// A write at v1 that changes nothing leaves the stored object as it was, request and all.
#[tokio::test]
async fn adopting_v1_changes_nothing_that_is_stored() {
    let fixture = Fixture::start().await;
    fixture.create_settled("demo").await;
    fixture
        .apply(Version::V1, "demo", "gitops", true, spec())
        .await
        .unwrap();
    let after = fixture.get(Version::V1alpha1, "demo").await;
    assert_eq!(after["spec"]["requestRollout"], REQUEST);
    assert_eq!(after["status"]["lastCompletedRolloutRequest"], REQUEST);
    assert_eq!(after["status"]["resourcesHash"], "r");
}

#[tokio::test]
async fn taking_an_edit_at_v1_back_takes_its_rollout_back() {
    let fixture = Fixture::start().await;
    fixture.create_settled("demo").await;
    let env = json!({"environmentdExtraEnv": [{"name": "A", "value": "1"}]});
    let apply = async |spec| {
        fixture
            .apply(Version::V1, "demo", "gitops", true, spec)
            .await
            .unwrap();
        fixture.get(Version::V1alpha1, "demo").await
    };
    let edited = apply(spec_with(env)).await;
    assert_ne!(edited["spec"]["requestRollout"], REQUEST);
    assert_eq!(edited["status"]["lastCompletedRolloutRequest"], REQUEST);
    assert_eq!(edited["status"]["resourcesHash"], "r");
    let back = apply(spec()).await;
    assert_eq!(back["spec"]["requestRollout"], REQUEST);
    assert_eq!(back["status"]["lastCompletedRolloutRequest"], REQUEST);
    assert_eq!(back["status"]["resourcesHash"], "r");
}

/// `server-side-apply` of the end-to-end suite, as far as it needs no controller.
#[tokio::test]
async fn fragments_of_field_managers_are_applied() {
    let fixture = Fixture::start().await;
    let v1 = Version::V1;
    fixture
        .create(
            Version::V1alpha1,
            "demo",
            spec_with(json!({"requestRollout": REQUEST})),
        )
        .await;
    fixture
        .apply(v1, "demo", "full", true, spec())
        .await
        .unwrap();
    let request = fixture.request("demo").await;
    let image = json!({"environmentdImageRef": "materialize/environmentd:v26.40.0"});
    fixture
        .apply(v1, "demo", "image", false, image)
        .await
        .unwrap();
    assert_eq!(fixture.request("demo").await, request);
    for force in [true, false] {
        let applied = fixture
            .apply(
                v1,
                "demo",
                "replicas",
                force,
                json!({"balancerdReplicas": 2}),
            )
            .await
            .unwrap();
        let owned: Vec<_> = applied["metadata"]["managedFields"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|entry| entry["manager"] == "replicas")
            .collect();
        assert_eq!(owned.len(), 1);
        assert_eq!(
            owned[0]["fieldsV1"],
            json!({"f:spec": {"f:balancerdReplicas": {}}})
        );
        assert_eq!(fixture.request("demo").await, request);
    }
    fixture
        .apply(
            Version::V1alpha1,
            "demo",
            "stored",
            false,
            json!({"consoleReplicas": 1}),
        )
        .await
        .unwrap();
    let read = fixture.get(v1, "demo").await;
    assert_eq!(read["spec"]["balancerdReplicas"], 2);
    assert_eq!(read["spec"]["consoleReplicas"], 1);
}

#[tokio::test]
async fn v1_goes_and_comes_back() {
    let fixture = Fixture::start().await;
    fixture.create(Version::V1, "demo", spec()).await;
    let request = fixture.request("demo").await;
    fixture.register(false).await.unwrap();
    assert_eq!(fixture.request("demo").await, request);
    fixture.register(true).await.unwrap();
    fixture.until_served(Version::V1).await;
    assert_eq!(
        fixture.get(Version::V1, "demo").await["spec"]["backendSecretName"],
        "mz-backend"
    );
}

#[tokio::test]
async fn an_unknown_stored_version_is_refused_with_the_way_out() {
    let control_plane = ControlPlane::private().await.unwrap();
    let client = control_plane.access().client().await.unwrap();
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    api.create(&PostParams::default(), &v1::Materialize::crd())
        .await
        .unwrap();
    let deadline = Instant::now() + LIMIT;
    let error = loop {
        match register(&client, &crds(None, &[])).await {
            Err(error @ RegistrationError::StoredVersions { .. }) => break error.to_string(),
            outcome => assert!(Instant::now() < deadline, "{outcome:?}"),
        }
    };
    assert!(
        error.contains("materializes.materialize.cloud") && error.contains("storedVersions"),
        "{error}"
    );
    control_plane.stop().await.unwrap();
}

/// What creating a Balancer of this routing comes to.
async fn create_balancer(client: &Client, name: &str, routing: Value) -> Result<(), String> {
    let mut spec = json!({"balancerdImageRef": "materialize/balancerd:v26.40.0"});
    let members: serde_json::Map<String, Value> = serde_json::from_value(routing).unwrap();
    spec.as_object_mut().unwrap().extend(members);
    let balancer = serde_json::from_value(json!({
        "apiVersion": "materialize.cloud/v1alpha1",
        "kind": "Balancer",
        "metadata": {"name": name},
        "spec": spec,
    }));
    let api: Api<Balancer> = Api::namespaced(client.clone(), NAMESPACE);
    let created = api.create(&PostParams::default(), &balancer.unwrap()).await;
    created.map(drop).map_err(|error| error.to_string())
}

#[tokio::test]
async fn a_balancer_has_exactly_one_routing_and_no_negative_replicas() {
    let fixture = Fixture::start().await;
    let routing = json!({"environmentdNamespace": "n", "environmentdServiceName": "s"});
    let create = async |name, routing| create_balancer(&fixture.client, name, routing).await;
    create("static", json!({"staticRouting": routing, "replicas": 0}))
        .await
        .unwrap();
    create(
        "null",
        json!({"staticRouting": routing, "fronteggRouting": null}),
    )
    .await
    .unwrap();
    create("frontegg", json!({"fronteggRouting": {}}))
        .await
        .unwrap();
    for (refused, told) in [
        (
            json!({}),
            "exactly one of staticRouting and fronteggRouting must be set",
        ),
        (
            json!({"staticRouting": routing, "fronteggRouting": {}}),
            "exactly one of staticRouting",
        ),
        (
            json!({"staticRouting": null, "fronteggRouting": null}),
            "exactly one of staticRouting",
        ),
        (
            json!({"staticRouting": routing, "replicas": -1}),
            "spec.replicas",
        ),
    ] {
        let error = create("refused", refused.clone()).await.unwrap_err();
        assert!(error.contains(told), "{refused}: {error}");
    }
}

#[tokio::test]
async fn an_identity_that_is_set_never_changes() {
    const ID: &str = "0c7a2f0e-27c6-4f0a-8a39-0a3e0c2a5d10";
    const OTHER: &str = "0c7a2f0e-27c6-4f0a-8a39-0a3e0c2a5d11";
    const NIL: &str = "00000000-0000-0000-0000-000000000000";
    let fixture = Fixture::start().await;
    for version in [Version::V1alpha1, Version::V1] {
        let name = format!("at-{}", version.name());
        fixture.create(version, &name, spec()).await;
        let api = fixture.api(version);
        let change = async |members: Value| {
            let patch = Patch::Merge(json!({"spec": members}));
            let patched = api.patch(&name, &PatchParams::default(), &patch).await;
            patched.map(drop).map_err(|error| error.to_string())
        };
        change(json!({"environmentId": ID})).await.unwrap();
        change(json!({"environmentId": ID, "enableRbac": true}))
            .await
            .unwrap();
        for refused in [json!(OTHER), json!(NIL), json!(null)] {
            let error = change(json!({"environmentId": refused})).await.unwrap_err();
            assert!(
                error.contains("spec.environmentId") && error.contains("must never change"),
                "{error}"
            );
        }
        let error = change(json!({"consoleReplicas": -1})).await.unwrap_err();
        assert!(error.contains("spec.consoleReplicas"), "{error}");
        change(json!({"balancerdReplicas": 0, "consoleReplicas": null}))
            .await
            .unwrap();
    }
}

/// The definition as it is registered.
async fn definition(client: &Client) -> Value {
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    let definition = api.get(v1alpha1::Materialize::crd_name()).await.unwrap();
    serde_json::to_value(definition).unwrap()
}

fn trusted(definition: &Value) -> String {
    let bundle = &definition["spec"]["conversion"]["webhook"]["clientConfig"]["caBundle"];
    let pem = BASE64_STANDARD.decode(bundle.as_str().unwrap()).unwrap();
    String::from_utf8(pem).unwrap()
}

#[tokio::test]
async fn a_new_ca_is_trusted_beside_the_old_until_all_replicas_have_it() {
    let mut fixture = Fixture::start().await;
    let old = trusted(&definition(&fixture.client).await);
    let certificate = certificate();
    fixture.webhook = serve(&certificate).await;
    fixture.register(true).await.unwrap();
    let new = fs::read_to_string(certificate.path().join("ca.crt")).unwrap();
    let both = trusted(&definition(&fixture.client).await);
    let body = |pem: &str| pem.split_whitespace().collect::<String>();
    assert_eq!(body(&both), body(&new) + &body(&old));
    fixture.create(Version::V1, "demo", spec()).await;

    let ca = fixture.webhook.ca().borrow().clone();
    trust_only(&fixture.client, &ca).await.unwrap();
    assert_eq!(trusted(&definition(&fixture.client).await), new);
    fixture.register(true).await.unwrap();
    let version = definition(&fixture.client).await["metadata"]["resourceVersion"].clone();
    fixture.register(true).await.unwrap();
    let unchanged = definition(&fixture.client).await["metadata"]["resourceVersion"].clone();
    assert_eq!(unchanged, version, "who registers the same writes nothing");
}

#[tokio::test]
async fn an_older_operator_leaves_the_definition_of_a_newer_one_but_has_its_ca_trusted() {
    let mut fixture = Fixture::start().await;
    let api: Api<CustomResourceDefinition> = Api::all(fixture.client.clone());
    let mut newer = definition(&fixture.client).await;
    newer["metadata"]["annotations"]["materialize.cloud/registered-by-version"] = json!("99.0.0");
    let column = json!({"name": "New", "type": "string", "jsonPath": ".spec.new"});
    let columns = &mut newer["spec"]["versions"][0]["additionalPrinterColumns"];
    columns.as_array_mut().unwrap().push(column);
    let newer: CustomResourceDefinition = serde_json::from_value(newer).unwrap();
    let name = v1alpha1::Materialize::crd_name();
    let newer = api
        .replace(name, &PostParams::default(), &newer)
        .await
        .unwrap();

    let certificate = certificate();
    fixture.webhook = serve(&certificate).await;
    fixture.register(true).await.unwrap();
    let left = api.get(name).await.unwrap();
    assert_eq!(left.spec.versions, newer.spec.versions);
    assert_eq!(left.metadata.annotations, newer.metadata.annotations);
    let new = fs::read_to_string(certificate.path().join("ca.crt")).unwrap();
    assert!(trusted(&definition(&fixture.client).await).starts_with(&new));
}
