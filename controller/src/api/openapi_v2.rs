//! OpenAPI 2.0 in the protobuf form that kubectl 1.28 and older, and Argo CD, request.

use super::error::ApiError;
use super::openapi::{group_version_kind, schema_name};
use axum::extract::Request;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use ha_api_types::kind::Kind;
use ha_api_types::schema;
use serde_json::{Value, json};
use std::sync::OnceLock;

const MEDIA_TYPE: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";

/// Handles `/openapi/v2`. There is no JSON form, because current clients do not request it.
pub(crate) async fn document(request: Request) -> Result<Response, ApiError> {
    static DOCUMENT: OnceLock<Vec<u8>> = OnceLock::new();
    let accept = request.headers().get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or("*/*");
    // kubectl writes the media type with an @.
    if !accept.contains("proto-openapi.spec.v2") && !accept.contains("*/*") {
        return Err(super::request::not_acceptable());
    }
    let mut response = DOCUMENT.get_or_init(build).clone().into_response();
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(MEDIA_TYPE));
    Ok(response)
}

/// A protobuf message under construction; field numbers are those of gnostic's `OpenAPIv2.proto`.
#[derive(Default)]
struct Message(Vec<u8>);

impl Message {
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(u8::try_from(value & 0x7f).unwrap_or_default() | 0x80);
            value >>= 7;
        }
        self.0.push(u8::try_from(value).unwrap_or_default());
    }

    fn bytes(&mut self, field: u64, bytes: &[u8]) {
        self.varint((field << 3) | 2);
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    fn text(&mut self, field: u64, text: &str) {
        self.bytes(field, text.as_bytes());
    }

    fn message(&mut self, field: u64, message: &Message) {
        self.bytes(field, &message.0);
    }

    fn bool_field(&mut self, field: u64, value: bool) {
        self.varint(field << 3);
        self.varint(u64::from(value));
    }
}

fn build() -> Vec<u8> {
    let mut information = Message::default();
    information.text(1, "hactl");
    information.text(2, env!("CARGO_PKG_VERSION"));
    let mut definitions = Message::default();
    for kind in Kind::ALL {
        let mut schema = schema::of(kind).clone();
        schema["x-kubernetes-group-version-kind"] = json!([group_version_kind(kind)]);
        definitions.message(1, &named_value(&schema_name(kind), &of_schema(&schema)));
    }
    let mut document = Message::default();
    document.text(1, "2.0");
    document.message(2, &information);
    document.message(8, &Message::default());
    document.message(9, &definitions);
    document.0
}

fn named_value(name: &str, value: &Message) -> Message {
    let mut message = Message::default();
    message.text(1, name);
    message.message(2, value);
    message
}

fn any_value(value: &Value) -> Message {
    let mut message = Message::default();
    message.text(2, &format!("{value}\n"));
    message
}

fn of_schema(schema: &Value) -> Message {
    let mut message = Message::default();
    for (name, part) in schema.as_object().into_iter().flatten() {
        match (name.as_str(), part) {
            ("format", Value::String(text)) => message.text(2, text),
            ("description", Value::String(text)) => message.text(4, text),
            ("required", Value::Array(names)) => {
                for name in names.iter().filter_map(Value::as_str) {
                    message.text(19, name);
                }
            }
            ("enum", Value::Array(values)) => {
                for value in values {
                    message.message(20, &any_value(value));
                }
            }

            ("additionalProperties", Value::Bool(allowed)) => {
                let mut item = Message::default();
                item.bool_field(2, *allowed);
                message.message(21, &item);
            }
            ("additionalProperties", further) => {
                let mut item = Message::default();
                item.message(1, &of_schema(further));
                message.message(21, &item);
            }
            ("type", Value::String(text)) => {
                let mut item = Message::default();
                item.text(1, text);
                message.message(22, &item);
            }
            ("items", of) => {
                let mut item = Message::default();
                item.message(1, &of_schema(of));
                message.message(23, &item);
            }
            ("properties", Value::Object(members)) => {
                let mut properties = Message::default();
                for (name, member) in members {
                    properties.message(1, &named_value(name, &of_schema(member)));
                }
                message.message(25, &properties);
            }
            (extension, value) if extension.starts_with("x-") => {
                message.message(31, &named_value(extension, &any_value(value)));
            }
            // OpenAPI 2.0 has neither alternatives nor null; defaults and bounds are in the 3.0 document.
            _ => {}
        }
    }
    if schema.get("anyOf").is_some() && schema.get("x-kubernetes-int-or-string").is_none() {
        message.message(31, &named_value("x-kubernetes-preserve-unknown-fields", &any_value(&json!(true))));
    }
    message
}
