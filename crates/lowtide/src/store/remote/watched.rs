//! Requests and answers as they pass: what the crate does not tell, and what it has no word for.

use super::trouble::Busy;
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpService,
    ReqwestConnector,
};
use std::time::Duration;

/// What a client is for: its connections differ in what they wait for, and in what they ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    Reading,
    /// Objects take the place of others.
    Replacing,
    /// Objects are new: one that is there already is left alone.
    Creating,
}

impl Purpose {
    /// For servers that are not asked for it when parts are put together.
    pub(super) fn without_condition(self) -> Self {
        if self == Self::Creating { Self::Replacing } else { self }
    }
}

/// Sees answers before the crate does: those that mean "not now" become [`Busy`]. And what is to be new is put together
/// under the condition that nothing is there: the crate has no word for that.
#[derive(Debug)]
pub(super) struct Watched(pub(super) Purpose);

impl HttpConnector for Watched {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(Watch(ReqwestConnector::default().connect(options)?, self.0)))
    }
}

#[derive(Debug)]
struct Watch(HttpClient, Purpose);

#[async_trait::async_trait]
impl HttpService for Watch {
    async fn call(&self, mut request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let completes = request.method().as_str() == "POST"
            && request.uri().query().is_some_and(|query| query.contains("uploadId="));
        // It need not be signed: only S3's own headers must be.
        if completes
            && self.1 == Purpose::Creating
            && let Ok(any) = "*".parse()
        {
            request.headers_mut().insert("if-none-match", any);
        }
        let answer = self.0.execute(request).await?;
        let status = answer.status().as_u16();
        if !(status == 429 || status == 408 || status >= 500) {
            return Ok(answer);
        }
        let wait =
            answer.headers().get("retry-after").and_then(|value| value.to_str().ok()?.trim().parse().ok());
        let busy = Busy { status, wait: wait.map(Duration::from_secs) };
        Err(HttpError::new(HttpErrorKind::Unknown, busy))
    }
}
