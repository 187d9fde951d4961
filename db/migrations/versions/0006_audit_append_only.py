"""Let the store itself refuse to change or remove what the audit log says."""

from __future__ import annotations

from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

SENTENCE = "the audit log is only added to"

SQLITE = """
create trigger audit_{event} before {event} on audit
begin
    select raise(abort, '{sentence}');
end
"""
SQLITE_REPLACE = """
create trigger audit_replace before insert on audit when exists (select 1 from audit where id = new.id)
begin
    select raise(abort, '{sentence}');
end
"""
"""A row that replaces another fires no trigger of deletions."""
POSTGRESQL_FUNCTION = """
create or replace function audit_is_only_added_to() returns trigger language plpgsql as $$
begin
    raise exception '{sentence}';
end
$$
"""
POSTGRESQL = """
create trigger audit_{event} before {event} on audit
for each statement execute function audit_is_only_added_to()
"""


def upgrade() -> None:
    """Make the triggers; PostgreSQL also empties tables without deleting rows."""
    if op.get_bind().dialect.name == "sqlite":
        for event in ("update", "delete"):
            op.execute(SQLITE.format(event=event, sentence=SENTENCE))
        op.execute(SQLITE_REPLACE.format(sentence=SENTENCE))
        return
    op.execute(POSTGRESQL_FUNCTION.format(sentence=SENTENCE))
    for event in ("update", "delete", "truncate"):
        op.execute(POSTGRESQL.format(event=event))
