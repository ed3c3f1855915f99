package sqlite

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"strings"
	"time"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/lease"
)

// roles are the parts that a child can play.
func roles() map[string]func(context.Context, *stage) error {
	all := map[string]func(context.Context, *stage) error{
		"worker":       playWorker,
		"copy over":    playCopyOver,
		"opener":       playOpener,
		"churn":        playChurn,
		"claimers":     playClaimers,
		"historian":    playHistorian,
		"presenter":    playPresenter,
		"op claimers":  playOpClaimers,
		"op churn":     playOpChurn,
		"hold callers": playHoldCallers,
		"hold churn":   playHoldChurn,
		"mail churn":   playMailChurn,
	}
	maps.Copy(all, systemRoles())
	return all
}

// playOpener opens the file and says how it went.
func playOpener(ctx context.Context, st *stage) error {
	s, err := Open(ctx, Config{Path: st.job.Path})
	if err != nil {
		st.say("refused %s %q", kindsOf(err), err.Error())
		return nil
	}
	st.say("open %s %s", s.Authority(), s.current)
	st.await()
	return s.Shutdown(ctx)
}

// actor is a session in a child.
type actor struct {
	*stage
	store   *Store
	session fence.ID
	ids     lease.IDs
	claims  map[string]fence.Claim
}

func newActor(ctx context.Context, st *stage) (*actor, error) {
	s, err := Open(ctx, Config{Path: st.job.Path})
	if err != nil {
		return nil, err
	}
	a := &actor{stage: st, store: s, session: lease.NewID(), claims: map[string]fence.Claim{}}
	ttl := st.job.TTL
	if ttl == 0 {
		ttl = time.Hour
	}
	_, err = s.Open(ctx, lease.OpenRequest{ID: a.session, Owner: "child", TTL: ttl})
	return a, err
}

func (a *actor) take(ctx context.Context, name string) error {
	grants, err := a.store.Acquire(ctx, lease.AcquireRequest{Session: a.session, ID: a.ids.New(), Names: []string{name}})
	if err == nil {
		a.claims[name] = grants[0].Claim
	}
	return err
}

func (a *actor) drop(ctx context.Context, name string) error {
	_, err := a.store.Release(ctx, lease.ReleaseRequest{Session: a.session, ID: a.claims[name].Acquisition, Names: []string{name}})
	return err
}

// playWorker opens the file and does what it is told, a line at a time.
func playWorker(ctx context.Context, st *stage) error {
	a, err := newActor(ctx, st)
	if err != nil {
		return err
	}
	st.say("ready %s", a.store.current)
	for st.await() {
		order, name, _ := strings.Cut(st.in.Text(), " ")
		answer, err := a.obey(ctx, order, name)
		switch {
		case err != nil:
			st.say("refused %s %q", kindsOf(err), err.Error())
		default:
			st.say("ok %s", answer)
		}
	}
	return a.store.Shutdown(ctx)
}

func (a *actor) obey(ctx context.Context, order, name string) (string, error) {
	switch order {
	case "take":
		err := a.take(ctx, name)
		return a.claims[name].Token.String(), err
	case "claim":
		return a.claims[name].String(), nil
	case "drop":
		return "", a.drop(ctx, name)
	case "renew":
		_, err := a.store.Renew(ctx, lease.RenewRequest{Session: a.session})
		return "", err
	case "get":
		info, err := a.store.Get(ctx, name)
		return info.Token.String(), err
	case "turn": // take the turn and keep it until the next line
		if err := a.store.side.enter(); err != nil {
			return "", err
		}
		a.say("in turn")
		a.await()
		return "", a.store.side.leave()
	case "fenced": // stay inside a fenced write until it is ended from outside
		err := a.store.Fenced(ctx, a.claims[name], func(ctx context.Context, tx *Tx) error {
			if _, err := tx.ExecContext(ctx, `INSERT INTO ledger (token, what) VALUES (?, 'unfinished')`, int64(a.claims[name].Token)); err != nil {
				return err
			}
			a.say("inside")
			<-ctx.Done()
			return ctx.Err()
		})
		return "", err
	}
	return "", fmt.Errorf("no order %q", order)
}

// kindsOf lists what the error matches, for a parent that only sees text.
func kindsOf(err error) string {
	kinds := []string{string(lease.CodeOf(err))}
	for name, kind := range map[string]error{"replaced": ErrReplaced, "stale_log": ErrStaleLog, "read_only": ErrReadOnly, "full": ErrFull, "other_boot": ErrOtherBoot, "shut_down": ErrShutDown} {
		if errors.Is(err, kind) {
			kinds = append(kinds, name)
		}
	}
	return strings.Join(kinds, ",")
}

// playCopyOver writes the content of another file over the database, as `cp` does. Not in a process that has
// the database open: closing it would drop SQLite's locks there.
func playCopyOver(_ context.Context, st *stage) error {
	raw, err := os.ReadFile(st.job.Source)
	if err != nil {
		return err
	}
	file, err := os.OpenFile(st.job.Path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(raw)
	return errors.Join(err, file.Close())
}
