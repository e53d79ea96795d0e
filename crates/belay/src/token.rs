//! `belay token`: make, list and revoke tokens.

use belay_api::{ListTokens, MadeToken, NewToken, TokenPage, TokenView};
use belay_kernel::Timestamp;

use crate::cli::{NewTokenArgs, TokenCommand};
use crate::connect::{Link, key};
use crate::fault::{Exit, Fault};
use crate::screen::{Ink, Palette, note, one_line, say, say_json};
use crate::times::{ago, now, short};

/// How many are asked for at a time.
const PAGE: usize = 200;

/// Does what is asked.
pub(crate) async fn token(
    link: &mut Link,
    command: &TokenCommand,
    json: bool,
) -> Result<Exit, Fault> {
    match command {
        TokenCommand::Create(new) => create(link, new, json).await,
        TokenCommand::Ls => list(link, json).await,
        TokenCommand::Revoke { name } => {
            let key = key(None)?;
            let revoked = link.ask(async |client| client.revoke_token(name, &key).await).await?;
            match json {
                true => say_json(&revoked),
                false => say(&format!("{} opens nothing any more", revoked.name)),
            }
            Ok(Exit::Done)
        }
    }
}

async fn create(link: &mut Link, new: &NewTokenArgs, json: bool) -> Result<Exit, Fault> {
    let body = NewToken {
        name: new.name.clone(),
        scope: new.scope,
        expires_in: new.expires_in.map(|span| span.to_string()),
    };
    let key = key(None)?;
    let made: MadeToken = link.ask(async |client| client.create_token(&body, &key).await).await?;
    if json {
        say_json(&made);
        return Ok(Exit::Done);
    }
    let Some(token) = &made.token else {
        return Err(Fault::failed(
            "the token was made, but its answer was lost; revoke it and make another",
        ));
    };
    // The token alone goes to standard output, so that it can be piped.
    note(&format!("belay: this is the token `{}`; it is not shown again", made.about.name));
    say(token);
    Ok(Exit::Done)
}

async fn list(link: &mut Link, json: bool) -> Result<Exit, Fault> {
    let mut whole = TokenPage { tokens: Vec::new(), after: None };
    loop {
        let which = ListTokens { limit: Some(PAGE), after: whole.after.clone() };
        let page = link.ask(async |client| client.tokens(&which).await).await?;
        whole.tokens.extend(page.tokens);
        whole.after = page.after;
        if whole.after.is_none() {
            break;
        }
    }
    match (json, whole.tokens.is_empty()) {
        (true, _) => say_json(&whole),
        (false, true) => say("no tokens but the installation's own"),
        (false, false) => say(&table(&whole.tokens, now(), Palette::stdout())),
    }
    Ok(Exit::Done)
}

fn table(tokens: &[TokenView], now: Timestamp, palette: Palette) -> String {
    let head = ["NAME", "SCOPE", "MADE", "LAST USE", "ENDS"].map(str::to_owned);
    let mut rows = vec![head];
    for token in tokens {
        let ends = match (token.revoked_at, token.expires_at) {
            (Some(at), _) => format!("revoked {}", ago(at, now)),
            (None, Some(at)) if at <= now => "over".to_owned(),
            (None, Some(at)) => format!("in {}", short(at.since(now))),
            (None, None) => "-".to_owned(),
        };
        rows.push([
            one_line(&token.name, 60),
            token.scope.to_string(),
            ago(token.created_at, now),
            token.last_used_at.map_or("never".to_owned(), |at| ago(at, now)),
            ends,
        ]);
    }
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
    let widths: Vec<usize> = (0..5).map(|column| width(column).unwrap_or(0)).collect();
    let lines = rows.iter().enumerate().map(|(index, row)| {
        let cells = row.iter().zip(&widths).map(|(cell, width)| {
            let padding = " ".repeat(width - cell.chars().count());
            let ink = if index == 0 { palette.paint(Ink::Faint, cell) } else { cell.clone() };
            format!("{ink}{padding}")
        });
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    });
    lines.collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use belay_api::Scope;
    use belay_kernel::TokenId;

    #[test]
    fn tokens_are_told_in_a_table() {
        let at = Timestamp::from_millis;
        let token = |name: &str, scope, revoked_at, expires_at: Option<Timestamp>| TokenView {
            id: TokenId::from_bits(7),
            name: name.to_owned(),
            scope,
            created_by: "admin".to_owned(),
            created_at: at(0),
            last_used_at: expires_at.map(|_| at(3_000_000)),
            expires_at,
            revoked_at,
        };
        let tokens = [
            token("ci", Scope::Operator, None, Some(at(90_000_000))),
            token("screen", Scope::Viewer, Some(at(3_540_000)), None),
            token("old", Scope::Admin, None, Some(at(1))),
        ];
        insta::assert_snapshot!(table(&tokens, at(3_600_000), Palette::plain()), @r"
        NAME    SCOPE     MADE    LAST USE  ENDS
        ci      operator  1h ago  10m ago   in 1d
        screen  viewer    1h ago  never     revoked 1m ago
        old     admin     1h ago  10m ago   over
        ");
    }
}
