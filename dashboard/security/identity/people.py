"""People as the API and the pages manage them: accounts, invitations, roles, private projects; rights are checked."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace

from dashboard.security.identity.access_tokens import AccessTokens
from dashboard.security.identity.identities import Identities
from dashboard.security.identity.sessions import CURRENT, Sessions
from dashboard.security.limits import RateLimit
from dashboard.security.turns import FIRST, Rank, Turns
from db import acting
from db.engine import Store
from db.exceptions import NoSuchProject, WrongState
from db.people import access_tokens, accounts, consequences, invitations, passwords, projects, removal, users
from db.people.accounts import NewAccount
from db.people.admission import Admission, NotAdmitted, Vouched, admit
from domain.people.accounts import (
    InvitationView,
    MemberView,
    ProjectAccessView,
    SessionView,
    UserView,
    checked_email,
    checked_name,
    checked_password,
    checked_role,
)
from domain.people.consequences import Consequence
from domain.people.projects import doubt_about
from domain.people.rights import OWNER, Denied, Rights
from domain.people.roles import Action, Role
from domain.requests.errors import InvalidRequest


class People:
    """The people of an installation; safe to use from any thread."""

    def __init__(
        self,
        store: Store,
        now: Callable[[], float],
        identities: Identities,
        sessions: Sessions,
        tokens: AccessTokens,
        hashing: Turns,
        admission: Admission,
    ) -> None:
        """`hashing` are the turns at hashing passwords."""
        self._store, self._now, self._hashing = store, now, hashing
        self._identities, self._sessions, self._tokens, self._admission = identities, sessions, tokens, admission
        self._wrong_passwords = RateLimit(MOST_WRONG, WRONG_WITHIN_S, now)

    # -- others --------------------------------------------------------------------------------

    def users(self) -> list[UserView]:
        """Everybody with an account. Raises Denied."""
        _require_manager()
        return [_as_seen(view) for view in accounts.every(self._store)]

    def user(self, name: str) -> UserView:
        """One person. Raises Denied, NoSuchUser."""
        _require_manager()
        return _as_seen(accounts.named(self._store, name))

    def set_role(self, name: str, role: str | None, project: str | None = None) -> UserView:
        """Give a role in a project, or in all that are not private; None or `none` takes it away.

        Raises Denied, NoSuchUser, InvalidRequest, WrongState."""
        given_role = checked_role(role)
        _require_giver(project)
        accounts.set_role(self._store, name, given_role, project)
        self._changed()
        log.info("%s has the role %s in %s", name, given_role, project or "all projects")
        return self.user(name)

    def doubt_about(self, project: str | None, subject: str | None = "role") -> str | None:
        """The sentence to say when something is given, or taken away (None), in a project that nothing names so far, as
        far as the actor may know."""
        if project is None or (acting.rights().sees(project) and projects.is_named(self._store, project)):
            return None
        return doubt_about(project, [view.name for view in self.projects()], subject)

    def remove(self, name: str, heir: str | None = None) -> list[str]:
        """Remove a person: their sessions and tokens end at once, their runs stay, the live ones as `heir`'s if named.

        Returns the live runs. Raises Denied, NoSuchUser, InvalidRequest, WrongState."""
        acting.rights().check(Action.OPERATE, None)
        live = removal.remove(self._store, name, self._now(), heir)
        self._sessions.end_of_person(name)
        self._changed()
        log.info("%s was removed", name)
        return live

    # -- what a change would take from others --------------------------------------------------

    def loss_by_privacy(self, project: str) -> Consequence:
        """Return the loss of others if the project is made private. Raises Denied, InvalidRequest."""
        _require_giver(project)
        return consequences.of_privacy(self._store, project)

    def loss_by_role(self, name: str, role: str | None, project: str | None = None) -> Consequence:
        """Return what a person would lose by another role. Raises Denied, NoSuchUser, InvalidRequest."""
        _require_giver(project)
        return consequences.of_role(self._store, name, checked_role(role), project)

    def loss_by_removal(self, name: str) -> Consequence:
        """Return what would end with a person's account. Raises Denied, NoSuchUser."""
        acting.rights().check(Action.OPERATE, None)
        return consequences.of_removal(self._store, name)

    def managers(self) -> list[str]:
        """The names of the owner and of the admins of all projects, for people who need to ask one."""
        return [view.name for view in accounts.every(self._store) if view.role in (Role.ADMIN, Role.OWNER)]

    def is_one_alone(self) -> bool:
        """Whether only the owner has an account or an invitation."""
        if users.has_several(self._store):
            return False
        return all(one.state(self._now()) != "open" for one in invitations.every(self._store))

    # -- invitations ---------------------------------------------------------------------------

    def invite(
        self, email: str, role: str = Role.VIEWER, project: str | None = None, days: float = invitations.DEFAULT_DAYS
    ) -> tuple[InvitationView, str]:
        """Invite a person, or let one with an account set a new password; returns the invitation and its secret,
        shown once. Raises Denied, InvalidRequest."""
        given_role, address = checked_role(role), checked_email(email)
        if given_role is None:
            raise InvalidRequest("role", "role must be viewer, member or admin.")
        _require_giver(project)  # first: people who may not invite do not learn who has an account
        account = accounts.entry(self._store, address) if project is None else None
        if account is not None:
            return self._let_back_in(account, days)
        view, secret = invitations.make(self._store, address, given_role, project, days, self._now())
        log.info("invitation %s made", view.id)
        return view, secret

    def _let_back_in(self, person: accounts.Entry, days: float) -> tuple[InvitationView, str]:
        if person.name == OWNER and acting.rights().by not in (None, OWNER):
            raise Denied("Only the owner sets the owner's password: `rankzero token` signs the owner in.")
        with self._store.read() as session:
            if not users.could_become(session, acting.rights(), person.name):
                raise Denied(
                    f"Only the owner lets {person.name} set a new password: its link could open private projects, or "
                    "use secrets, that are not yours."
                )
        role = accounts.named(self._store, person.name).role or Role.VIEWER
        invited = invitations.make(self._store, str(person.email), role, None, days, self._now(), person.name)
        log.info("invitation %s made: %s may set a new password", invited[0].id, person.name)
        return invited

    def invitations(self) -> list[InvitationView]:
        """The invitations that the actor may revoke, newest first, those that have ended too. Raises Denied."""
        _require_manager()
        return [view for view in invitations.every(self._store) if _may_give(view.project)]

    def revoke_invitation(self, invitation_id: str) -> InvitationView:
        """End an open invitation that is in the actor's list. Raises Denied, NoSuchInvitation."""
        _require_manager()
        if not _may_give(invitations.one(self._store, invitation_id).project):
            raise invitations.no_such(invitation_id)
        return invitations.revoke(self._store, invitation_id, self._now())

    def invited(self, secret: str) -> InvitationView:
        """The open invitation of a link. Raises NoSuchInvitation, InvitationEnded."""
        return invitations.of_secret(self._store, secret, self._now())

    def accept(self, secret: str, name: str, password: str, rank: Rank = FIRST) -> str:
        """Make the account of an invitation; returns its name. Visitors with the link wait by their rank.

        Raises NoSuchInvitation, InvitationEnded, InvalidRequest, NoTurn."""
        invitation = self.invited(secret)
        name = checked_name(name)
        password_hash = self._hashed(checked_password(password, name, invitation.email), rank)
        with self._store.write() as session:
            account = NewAccount(name, invitation.email, None, password_hash)
            invitations.accept(session, secret, account, self._now())
        self._changed()
        log.info("%s accepted invitation %s", name, invitation.id)
        return name

    def tokens_of(self, invitation: InvitationView) -> list[str]:
        """The names of the valid access tokens of the person whose reset link this is."""
        return self._tokens.names(str(invitation.user))

    def accept_password(self, secret: str, password: str, rank: Rank = FIRST, *, revokes_tokens: bool = False) -> str:
        """Set the new password of the person whose reset link this is; end their sessions, and their access tokens
        if they say so; returns their name.

        Raises NoSuchInvitation, InvitationEnded, InvalidRequest, NoTurn."""
        invitation = self.invited(secret)
        password_hash = self._hashed(checked_password(password, str(invitation.user), invitation.email), rank)
        with self._store.write() as session:
            name = invitations.set_password(session, secret, password_hash, self._now())
            revoked = access_tokens.revoke_all(session, name, self._now()) if revokes_tokens else []
        self._tokens.forget(revoked)
        self._sessions.end_of_person(name)
        log.info("%s has set a new password by invitation %s", name, invitation.id)
        return name

    def admit(self, vouched: Vouched, invitation: str | None = None) -> str:
        """The account of a person who signs in through a provider.

        Raises NotAdmitted, NoSuchInvitation, InvitationEnded."""
        before = accounts.entry(self._store, vouched.email)
        name = admit(self._store, vouched, self._admission, self._now(), invitation)
        if before is not None and before.name == name != OWNER and before.identity is None:
            self._sessions.end_of_person(name)  # opened before by a password
        self._changed()
        return name

    def admit_by_proxy(self, email: str) -> str:
        """The account of a person who signs in through a proxy. Raises NotAdmitted."""
        try:
            vouched = Vouched(checked_email(email), None)
        except InvalidRequest:
            raise NotAdmitted("The proxy's header must hold one e-mail address.") from None
        return admit(self._store, vouched, self._admission._replace(makes_accounts=True), self._now())

    def free_name(self, email: str) -> str:
        """A name to propose to the person with this address."""
        with self._store.read() as session:
            return accounts.free_name(session, email)

    # -- projects ------------------------------------------------------------------------------

    def projects(self) -> list[ProjectAccessView]:
        """The projects that exist for the actor."""
        return projects.every(self._store)

    def set_privacy(self, project: str, is_private: bool) -> ProjectAccessView:
        """Make a project private, or open it again. Raises Denied, InvalidRequest."""
        _require_giver(project)
        projects.set_privacy(self._store, project, is_private, self._now())
        self._changed()
        rights = acting.rights()
        role = self._identities.fresh(rights).role_in(project) if rights.by else Role.OWNER
        return ProjectAccessView(project, is_private, role)

    def members(self, project: str) -> list[MemberView]:
        """Everybody with a role in a project. Raises NoSuchProject, also where it is hidden."""
        if project not in {view.name for view in projects.every(self._store)}:
            raise NoSuchProject(f"There is no project {project!r}.")
        return projects.members(self._store, project)

    # -- oneself -------------------------------------------------------------------------------

    def me(self) -> UserView:
        """The person who acts; the program itself counts as the owner."""
        return accounts.named(self._store, acting.name())

    def set_email(self, email: str, old: str | None = None) -> UserView:
        """Set one's own address, with which one signs in, by the present password where there is one.

        Raises Denied, InvalidRequest: that password is wrong."""
        name, email = _in_person(), checked_email(email)
        if self._admission.vouches and name != OWNER and email != self.me().email:
            raise Denied(
                "Your address comes from the provider or proxy and cannot change here: ask an admin for an invitation."
            )
        self._require_password(accounts.named_entry(self._store, name), old)
        accounts.set_email(self._store, name, email)
        return self.me()

    def set_password(self, password: str, old: str | None = None) -> None:
        """Set one's own password; all one's sessions but the current one end.

        Raises Denied, WrongState, InvalidRequest: the old one is wrong."""
        me = accounts.named_entry(self._store, _in_person())
        if self.is_at_provider(self.me()):
            raise Denied(
                "You sign in at the provider: a password would still open your account after the provider closes it. "
                "An admin's link can still set one."
            )
        self._require_password(me, old)
        if me.email is None:
            raise WrongState("Set your e-mail address first: you sign in with it.")
        password_hash = self._hashed(checked_password(password, me.name, me.email))
        accounts.set_password(self._store, me.name, password_hash)
        self._end_others(me.name)
        log.info("%s has changed the password", me.name)

    def is_at_provider(self, view: UserView) -> bool:
        """Whether the provider alone says whether this person may sign in."""
        return self._admission.vouches and view.has_identity and not view.has_password and view.name != OWNER

    def sessions(self) -> list[SessionView]:
        """One's own browsers that are signed in. Raises Denied."""
        return self._sessions.of_person(_in_person())

    def end_session(self, session_id: str) -> None:
        """Sign one of one's own browsers out. Raises Denied, NoSuchSession."""
        self._sessions.end_one(_in_person(), session_id)

    def sign_out_everywhere(self) -> None:
        """End all of one's own sessions, this one too. Raises Denied."""
        self._sessions.end_of_person(_in_person())

    def sign_out_others(self) -> None:
        """End all of one's own sessions but this one. Raises Denied."""
        self._end_others(_in_person())

    def _end_others(self, name: str) -> None:
        current = CURRENT.get()
        self._sessions.end_of_person(name, but=current.secret_hash if current is not None else None)

    def _require_password(self, me: accounts.Entry, old: str | None) -> None:
        """Check the current password of a person who has one: it prevents takeover from an open browser.

        Raises InvalidRequest."""
        if not me.password_hash or _has_login_token():
            return
        if not old:
            raise InvalidRequest("old", "Your current password is needed, too.")
        if not self._wrong_passwords.take(me.name):
            raise InvalidRequest("old", f"{MOST_WRONG} wrong passwords in a quarter of an hour: try again later.")
        with self._hashing.taken():
            is_right = passwords.is_right(old, me.password_hash)
        if not is_right:
            raise InvalidRequest("old", "The current password is wrong.")
        self._wrong_passwords.give_back(me.name)

    def _hashed(self, password: str, rank: Rank = FIRST) -> str:
        with self._hashing.taken(rank):
            return passwords.hashed(password)

    def _changed(self) -> None:
        self._identities.forget()


log = logging.getLogger("rankzero")
MOST_WRONG = 10
WRONG_WITHIN_S = 900.0


def _require_manager() -> None:
    if (refusal := acting.rights().refusal_anywhere(Action.MANAGE)) is not None:
        raise Denied(refusal)


def _require_giver(project: str | None) -> None:
    """Check that the actor may give roles there. Raises Denied, InvalidRequest."""
    rights = acting.rights()
    if project is None:
        rights.check(Action.OPERATE, None)
    elif not project.strip() or len(project) > LONGEST_PROJECT or not project.isprintable():
        raise InvalidRequest("project", f"project must be one line of 1 to {LONGEST_PROJECT} characters.")
    else:
        rights.check(Action.MANAGE, project)


LONGEST_PROJECT = 200


def _may_give(project: str | None) -> bool:
    action = Action.OPERATE if project is None else Action.MANAGE
    return acting.rights().may(action, project)


def _as_seen(view: UserView) -> UserView:
    """Leave out the projects that are hidden from the actor."""
    rights: Rights = acting.rights()
    return replace(view, projects={name: role for name, role in view.projects.items() if rights.sees(name)})


def _has_login_token() -> bool:
    """Whether the sender signed in with the token of the server, which counts more than a password."""
    current = CURRENT.get()
    return acting.rights().by in (None, OWNER) and (current is None or current.way == "token")


def _in_person() -> str:
    """The name of the person who acts, without a token of theirs in between. Raises Denied."""
    rights = acting.rights()
    if rights.via is not None:
        raise Denied(f"Only its owner changes an account, not {rights.via}: sign in with a browser.")
    return acting.name()
