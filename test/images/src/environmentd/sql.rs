//! The SQL ports: enough of Postgres' protocol to see that somebody is there.

use std::fmt::Debug;
use std::net::TcpListener;
use std::sync::Arc;

use anyhow::{Context, Result};
use async_trait::async_trait;
use axum_server::tls_rustls::RustlsConfig;
use futures::{Sink, stream};
use pgwire::api::auth::cleartext::CleartextPasswordAuth;
use pgwire::api::auth::mechanism::{AuthMechanism, AuthMechanismFactory, AuthState};
use pgwire::api::auth::sasl::scram::{
    SCRAM_ITERATIONS, ScramAuth, ScramSecret, gen_salted_password,
};
use pgwire::api::auth::{
    AuthDriver, AuthOutcome, AuthSource, DefaultServerParameterProvider, LoginInfo, Password,
    StartupHandler, protocol_negotiation, save_startup_parameters_to_metadata,
};
use pgwire::api::portal::{Format, Portal};
use pgwire::api::query::{ExtendedQueryHandler, SimpleQueryHandler};
use pgwire::api::results::{DataRowEncoder, FieldInfo, QueryResponse, Response};
use pgwire::api::stmt::QueryParser;
use pgwire::api::store::PortalStore;
use pgwire::api::{ClientInfo, ClientPortalStore, PgWireServerHandlers, Type};
use pgwire::error::{ErrorInfo, PgWireError, PgWireResult};
use pgwire::messages::startup::PasswordMessageFamily;
use pgwire::messages::{PgWireBackendMessage, PgWireFrontendMessage};
use pgwire::tokio::{TlsAcceptor, process_socket};
use tracing::debug;

use super::listeners::{AllowedRoles, AuthenticatorKind, SqlListener};
use super::shared::Shared;
use super::statement::{Answer, Refusal, Statement};

/// Serves one SQL port until the future is dropped.
pub(crate) async fn serve(
    listener: TcpListener,
    config: SqlListener,
    shared: Arc<Shared>,
    tls: Option<RustlsConfig>,
) -> Result<()> {
    let listener = tokio::net::TcpListener::from_std(listener).context("serving SQL")?;
    let acceptor = tls.map(|tls| TlsAcceptor::from(tls.get_inner()));
    let port = Arc::new(Port::new(config, shared));
    let mut connections = tokio::task::JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let (socket, _) = accepted.context("accepting a SQL connection")?;
                connections.spawn(process_socket(socket, acceptor.clone(), Arc::clone(&port)));
            }
            Some(ended) = connections.join_next() => debug!("a SQL connection ended: {ended:?}"),
        }
    }
}

/// One SQL port: Postgres' handlers over the shared state.
struct Port {
    handler: Arc<Handler>,
}

impl Port {
    fn new(config: SqlListener, shared: Arc<Shared>) -> Self {
        let secret = Arc::new(MzSystem {
            password: shared.password.clone(),
        });
        let mechanism: Box<dyn AuthMechanismFactory> = match config.authenticator_kind {
            AuthenticatorKind::Sasl => Box::new(ScramAuth::new(secret)),
            AuthenticatorKind::Password | AuthenticatorKind::Oidc => {
                Box::new(CleartextPasswordAuth::new(secret))
            }
            AuthenticatorKind::Frontegg | AuthenticatorKind::Talos | AuthenticatorKind::None => {
                Box::new(NoPassword)
            }
        };
        let driver = AuthDriver::new(DefaultServerParameterProvider::default());
        Self {
            handler: Arc::new(Handler {
                shared,
                config,
                mechanism,
                driver,
            }),
        }
    }
}

impl PgWireServerHandlers for Port {
    fn simple_query_handler(&self) -> Arc<impl SimpleQueryHandler> {
        Arc::clone(&self.handler)
    }

    fn extended_query_handler(&self) -> Arc<impl ExtendedQueryHandler> {
        Arc::clone(&self.handler)
    }

    fn startup_handler(&self) -> Arc<impl StartupHandler> {
        Arc::clone(&self.handler)
    }
}

/// The only user with a password.
struct MzSystem {
    password: Option<String>,
}

impl Debug for MzSystem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("MzSystem")
    }
}

impl MzSystem {
    fn password_of(&self, login: &LoginInfo<'_>) -> PgWireResult<&str> {
        match (login.user(), &self.password) {
            (Some("mz_system"), Some(password)) => Ok(password),
            (user, _) => Err(PgWireError::InvalidPassword(
                user.unwrap_or_default().to_owned(),
            )),
        }
    }
}

#[async_trait]
impl AuthSource for MzSystem {
    async fn get_password(&self, login: &LoginInfo) -> PgWireResult<Password> {
        Ok(Password::new(
            None,
            self.password_of(login)?.as_bytes().to_vec(),
        ))
    }

    async fn get_scram_secret(&self, login: &LoginInfo) -> PgWireResult<(ScramSecret, Option<()>)> {
        let salt = uuid::Uuid::new_v4().as_bytes().to_vec();
        let salted_password =
            gen_salted_password(self.password_of(login)?, &salt, SCRAM_ITERATIONS);
        Ok((
            ScramSecret::SaltedPassword {
                salt,
                salted_password,
            },
            None,
        ))
    }
}

/// Lets everybody in.
struct NoPassword;

impl AuthMechanismFactory for NoPassword {
    fn create(&self) -> Box<dyn AuthMechanism> {
        Box::new(Self)
    }
}

#[async_trait]
impl AuthMechanism for NoPassword {
    async fn begin(&mut self, _: &(dyn ClientInfo + Send + Sync)) -> PgWireResult<AuthState> {
        Ok(AuthState::Ok {
            final_message: None,
            identity: None,
        })
    }

    async fn next(
        &mut self,
        _: &(dyn ClientInfo + Send + Sync),
        _: PasswordMessageFamily,
    ) -> PgWireResult<AuthState> {
        Err(PgWireError::NoAuthenticationInProgress)
    }
}

struct Handler {
    shared: Arc<Shared>,
    config: SqlListener,
    mechanism: Box<dyn AuthMechanismFactory>,
    driver: AuthDriver<DefaultServerParameterProvider>,
}

impl Handler {
    /// Whether this port lets that user in and speaks to it over this connection.
    fn admit(&self, client: &impl ClientInfo) -> PgWireResult<()> {
        if self.config.enable_tls && !client.is_secure() {
            return Err(error("08004", "TLS encryption is required".into()));
        }
        let user = LoginInfo::from_client_info(client)
            .user()
            .unwrap_or_default()
            .to_owned();
        let internal = matches!(user.as_str(), "mz_system" | "mz_support");
        let admitted = match self.config.allowed_roles {
            AllowedRoles::Normal => !internal,
            AllowedRoles::Internal => internal,
            AllowedRoles::NormalAndInternal => true,
        };
        if admitted {
            Ok(())
        } else {
            Err(error(
                "28000",
                format!("user {user:?} may not log in on this port"),
            ))
        }
    }

    fn run(&self, statement: &Statement, format: &Format) -> PgWireResult<Response> {
        let answer = statement.answer(&self.shared)?;
        let mut row = DataRowEncoder::new(Arc::new(schema(statement, format)));
        match answer {
            Answer::Number(number) => row.encode_field(&number)?,
            Answer::Text(text) => row.encode_field(&text)?,
        }
        let rows = stream::iter([Ok(row.take_row())]);
        Ok(Response::Query(QueryResponse::new(
            Arc::new(schema(statement, format)),
            rows,
        )))
    }
}

fn schema(statement: &Statement, format: &Format) -> Vec<FieldInfo> {
    let datatype = match statement {
        Statement::SelectNumber(_) => Type::INT4,
        Statement::SelectVersion | Statement::Show(_) => Type::TEXT,
    };
    vec![FieldInfo::new(
        statement.column().to_owned(),
        None,
        None,
        datatype,
        format.format_for(0),
    )]
}

fn error(sqlstate: &str, message: String) -> PgWireError {
    PgWireError::UserError(Box::new(ErrorInfo::new(
        "ERROR".into(),
        sqlstate.into(),
        message,
    )))
}

impl From<Refusal> for PgWireError {
    fn from(refusal: Refusal) -> Self {
        error(refusal.sqlstate, refusal.message)
    }
}

#[async_trait]
impl StartupHandler for Handler {
    async fn on_startup<C>(
        &self,
        client: &mut C,
        message: PgWireFrontendMessage,
    ) -> PgWireResult<()>
    where
        C: ClientInfo + Sink<PgWireBackendMessage> + Unpin + Send + Sync,
        C::Error: Debug,
        PgWireError: From<<C as Sink<PgWireBackendMessage>>::Error>,
    {
        let outcome = match message {
            PgWireFrontendMessage::Startup(ref startup) => {
                protocol_negotiation(client, startup).await?;
                save_startup_parameters_to_metadata(client, startup);
                self.admit(client)?;
                self.driver
                    .begin_authentication(client, self.mechanism.create())
                    .await?
            }
            PgWireFrontendMessage::PasswordMessageFamily(message) => {
                self.driver.advance_authentication(client, message).await?
            }
            _ => AuthOutcome::InProgress,
        };
        match outcome {
            AuthOutcome::InProgress => Ok(()),
            AuthOutcome::Authenticated { final_message, .. } => {
                self.driver
                    .complete_authentication(client, final_message)
                    .await
            }
        }
    }
}

#[async_trait]
impl SimpleQueryHandler for Handler {
    async fn do_query<C>(&self, _: &mut C, query: &str) -> PgWireResult<Vec<Response>>
    where
        C: ClientInfo + ClientPortalStore + Sink<PgWireBackendMessage> + Unpin + Send + Sync,
        C::PortalStore: PortalStore,
        C::Error: Debug,
        PgWireError: From<<C as Sink<PgWireBackendMessage>>::Error>,
    {
        let statement = Statement::parse(query)?;
        Ok(vec![self.run(&statement, &Format::UnifiedText)?])
    }
}

#[async_trait]
impl ExtendedQueryHandler for Handler {
    type Statement = Statement;
    type QueryParser = Parser;

    fn query_parser(&self) -> Arc<Parser> {
        Arc::new(Parser)
    }

    async fn do_query<C>(
        &self,
        _: &mut C,
        portal: &Portal<Statement>,
        _max_rows: usize,
    ) -> PgWireResult<Response>
    where
        C: ClientInfo + ClientPortalStore + Sink<PgWireBackendMessage> + Unpin + Send + Sync,
        C::PortalStore: PortalStore<Statement = Statement>,
        C::Error: Debug,
        PgWireError: From<<C as Sink<PgWireBackendMessage>>::Error>,
    {
        self.run(&portal.statement.statement, &portal.result_column_format)
    }
}

/// Parses statements that are to be prepared; none takes parameters.
struct Parser;

#[async_trait]
impl QueryParser for Parser {
    type Statement = Statement;

    async fn parse_sql<C>(
        &self,
        _: &C,
        sql: &str,
        _: &[Option<Type>],
    ) -> PgWireResult<Option<Statement>>
    where
        C: ClientInfo + Unpin + Send + Sync,
    {
        Ok(Some(Statement::parse(sql)?))
    }

    fn get_parameter_types(&self, _: &Statement) -> PgWireResult<Vec<Type>> {
        Ok(Vec::new())
    }

    fn get_result_schema(
        &self,
        statement: &Statement,
        format: Option<&Format>,
    ) -> PgWireResult<Vec<FieldInfo>> {
        Ok(schema(statement, format.unwrap_or(&Format::UnifiedText)))
    }
}
