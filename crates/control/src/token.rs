//! Tokens that people make: shown once, kept as a hash, with a scope, until they end or are
//! revoked. A token names its own row, so that one look finds it; what is compared is its hash, in
//! a time that tells nothing.

use belay_api::{
    Ask, Code, ListTokens, MadeToken, NewToken, Principal, Problem, Scope, TOKEN, TokenPage,
    TokenView, token_hash, token_is,
};
use belay_kernel::{Span, Timestamp, TokenId};
use belay_store::rows::TokenRow;
use belay_store::{After, Commit, Failure, Name, Query, Refusal, Rule, Store, Stored};
use serde_json::json;

use crate::Control;
use crate::commit::Put;
use crate::look::TRIES;
use crate::refuse::{Outcome, Refused};

/// A use is noted if the last one that was noted is older than this: no request waits for a write
/// that only tells when somebody was there.
const NOTED_EVERY: Span = Span::from_secs(60);
/// The longest name.
const LONGEST_NAME: usize = 60;
/// The name of whoever has the installation's own token.
const ADMIN: &str = "admin";
/// How many tokens one page shows.
const PAGE: usize = 100;
const MAX_PAGE: usize = 1_000;

impl<S: Store> Control<S> {
    /// Makes a token. It is told this once; whoever asks again with the same key is told of it
    /// without the token.
    pub async fn make_token(
        &self,
        ask: impl Into<Ask>,
        new: NewToken,
    ) -> Result<MadeToken, Problem> {
        Ok(self.mint(ask.into(), new).await?)
    }

    async fn mint(&self, ask: Ask, new: NewToken) -> Outcome<MadeToken> {
        check_name(&new.name)?;
        if new.scope == Scope::Attempt {
            let detail = "runners make the tokens of attempts; give one of the other scopes";
            return Err(Refused::new(Code::BadRequest, detail));
        }
        let lasts = new.expires_in.as_deref().map(str::parse::<Span>).transpose();
        let lasts = lasts
            .map_err(|error| Refused::new(Code::BadRequest, format!("`expires_in`: {error}")))?;
        let body = format!("token {} {} {lasts:?}", new.name, new.scope);
        let asked = self.asked(ask, &body);
        if let Some(answer) = self.replayed_answer(&asked).await? {
            let id = answer["token"].as_str().and_then(|id| id.parse().ok());
            let before = match id {
                Some(id) => self.row::<TokenRow>(id).await?,
                None => None,
            };
            let gone = || Refused::new(Code::Gone, "the token that was made so is not there");
            return Ok(MadeToken { token: None, about: view(&before.ok_or_else(gone)?.row) });
        }
        let id = TokenId::from_bits(self.inner.chance.draw());
        let (high, low) = (self.inner.chance.draw(), self.inner.chance.draw());
        let token = format!("{TOKEN}{id}_{high:032x}{low:032x}");
        let now = self.now().await?;
        let row = TokenRow {
            id,
            name: new.name.as_str().into(),
            scope: new.scope.name().into(),
            hash: token_hash(&token).into(),
            created_by: asked.by().into(),
            created_at: now,
            last_used_at: None,
            expires_at: lasts.map(|lasts| now.after(lasts)),
            revoked_at: None,
        };
        let request = asked.request_answered(&json!({ "token": id }), now);
        match self.put(Commit::new().insert(&row).request(request).into()).await {
            Ok(Put::Done) => Ok(MadeToken { token: Some(token), about: view(&row) }),
            Ok(Put::Overtaken) => Err(Refused::busy()),
            Err(Refused::Failed(Failure::Refused(Refusal::Rule {
                rule: Rule::OneTokenName,
                ..
            }))) => {
                let detail = format!("there is a token `{}`; revoke it first", new.name);
                Err(Refused::new(Code::Refused, detail))
            }
            Err(refused) => Err(refused),
        }
    }

    /// Lists tokens, newest first; nothing in them opens anything.
    pub async fn tokens(&self, which: ListTokens) -> Result<TokenPage, Problem> {
        Ok(self.token_page(which).await?)
    }

    async fn token_page(&self, which: ListTokens) -> Outcome<TokenPage> {
        let mut query = Query::<TokenRow>::first(which.limit.unwrap_or(PAGE).clamp(1, MAX_PAGE));
        if let Some(after) = which.after {
            let after: After = after.parse().map_err(Failure::Refused)?;
            query = query.after(Some(after));
        }
        let page = self.store().list(query).await?;
        let tokens = page.rows.iter().map(|row| view(&row.row)).collect();
        Ok(TokenPage { tokens, after: page.after.map(|after| after.to_string()) })
    }

    /// Ends a token, which is named by its id or its name. From the answer on it opens nothing.
    pub async fn revoke_token(
        &self,
        ask: impl Into<Ask>,
        named: &str,
    ) -> Result<TokenView, Problem> {
        Ok(self.revoke(ask.into(), named).await?)
    }

    async fn revoke(&self, ask: Ask, named: &str) -> Outcome<TokenView> {
        let asked = self.asked(ask, &format!("revoke {named}"));
        let replayed = self.replayed_answer(&asked).await?;
        let id = replayed.and_then(|answer| answer["token"].as_str()?.parse().ok());
        for _ in 0..TRIES {
            let stored = match id {
                Some(id) => self.row::<TokenRow>(id).await?,
                None => self.find_token(named).await?,
            };
            let Some(stored) = stored else {
                let named = short(named);
                let detail =
                    format!("there is no token `{named}`; the list of tokens shows their names");
                return Err(Refused::new(Code::NotFound, detail));
            };
            if stored.row.revoked_at.is_some() {
                return Ok(view(&stored.row));
            }
            let now = self.now().await?;
            let row = TokenRow { revoked_at: Some(now), ..stored.row };
            let request = asked.request_answered(&json!({ "token": row.id }), now);
            let commit = Commit::new().update(stored.revision, &row).request(request);
            if self.try_put(commit.into()).await? == Put::Done {
                return Ok(view(&row));
            }
        }
        Err(Refused::busy())
    }

    async fn find_token(&self, named: &str) -> Outcome<Option<Stored<TokenRow>>> {
        if let Ok(id) = named.parse::<TokenId>() {
            return Ok(self.row::<TokenRow>(id).await?);
        }
        if check_name(named).is_err() {
            return Ok(None);
        }
        let query = Query::<TokenRow>::first(1).live(&[Name::from(named)]);
        Ok(self.store().list(query).await?.rows.pop())
    }

    /// Whoever holds this token, if a person made it and it has not ended.
    pub(crate) async fn holder(&self, token: &str) -> Outcome<Option<Principal>> {
        let Some(id) = named(token) else { return Ok(None) };
        let Some(stored) = self.row::<TokenRow>(id).await? else { return Ok(None) };
        let now = self.now().await?;
        let row = &stored.row;
        let over = row.revoked_at.is_some() || row.expires_at.is_some_and(|at| at <= now);
        if !token_is(token, &row.hash) || over {
            return Ok(None);
        }
        let scope = row.scope.parse::<Scope>();
        let scope = scope.map_err(|error| Refused::new(Code::Internal, error.to_string()))?;
        let holder = Principal::holder(scope, row.name.to_string());
        self.note_use(stored, now).await;
        Ok(Some(holder))
    }

    async fn note_use(&self, stored: Stored<TokenRow>, now: Timestamp) {
        let noted = |at: Timestamp| now.since(at) < NOTED_EVERY;
        if stored.row.last_used_at.is_some_and(noted) {
            return;
        }
        let row = TokenRow { last_used_at: Some(now), ..stored.row };
        // Nobody is kept out because it cannot be noted; the next use is.
        let _ = self.store().commit(Commit::new().update(stored.revision, &row)).await;
    }
}

/// The row that a token names.
fn named(token: &str) -> Option<TokenId> {
    token.strip_prefix(TOKEN)?.split('_').next()?.parse().ok()
}

/// Names are told in lists, in what was made by whom, and stand for the token in a path.
fn check_name(name: &str) -> Outcome<()> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-@".contains(c);
    let usable = (1..=LONGEST_NAME).contains(&name.len()) && name.chars().all(plain);
    if usable && name != ADMIN && name.parse::<TokenId>().is_err() {
        return Ok(());
    }
    let detail = format!(
        "`{}` cannot be the name of a token: 1 to {LONGEST_NAME} letters, digits and `._-@`, \
         neither `{ADMIN}` nor an id",
        short(name)
    );
    Err(Refused::new(Code::BadRequest, detail))
}

fn short(name: &str) -> String {
    name.chars().take(LONGEST_NAME).collect()
}

fn view(row: &TokenRow) -> TokenView {
    TokenView {
        id: row.id,
        name: row.name.to_string(),
        scope: row.scope.parse().unwrap_or(Scope::Viewer),
        created_by: row.created_by.to_string(),
        created_at: row.created_at,
        last_used_at: row.last_used_at,
        expires_at: row.expires_at,
        revoked_at: row.revoked_at,
    }
}
