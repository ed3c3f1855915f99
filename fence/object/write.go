package object

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/tenure-go/tenure/fence"
)

// maxAttempts bounds how often one call sends a PUT.
const maxAttempts = 32

// The wait before an attempt is a random part of base, doubled each time, of at most longest.
const (
	waitBase    = 2 * time.Millisecond
	waitLongest = 250 * time.Millisecond
)

// rules are how a write is made. What a deliberately broken twin changes is a field.
type rules struct {
	bucket Bucket
	nonce  func() string
	admit  func(fence.Mark, fence.Claim) (fence.Mark, error)
}

func sound(b Bucket) rules { return rules{bucket: b, nonce: newNonce, admit: fence.Admit} }

// state is what a look at the object showed. The zero state is: nothing there.
type state struct {
	etag   string
	frame  *frame
	raw    []byte // of an object without a frame; not nil then
	rawErr error
}

func (s state) present() bool { return s.frame != nil && s.frame.present }

// content is nil only if there is no object.
func (s state) content() []byte {
	if !s.present() {
		return nil
	}
	return s.frame.content[:len(s.frame.content):len(s.frame.content)]
}

func (s state) mark(key string) fence.Mark {
	if s.frame == nil {
		return fence.Mark{Resource: key}
	}
	return fence.Mark{Resource: key, Authority: s.frame.claim.Authority, Name: s.frame.claim.Name, Token: s.frame.claim.Token}
}

// change is what one call does to an object.
type change struct {
	op      string
	reads   bool // it needs the content
	repeats bool // doing it twice is as good as once, whatever was written in between
	adopts  bool // it takes an object without a frame
	next    func(cur state) (*frame, error)
}

// write makes a change: look, decide, PUT on the condition that nothing has changed, and again.
func (r rules) write(ctx context.Context, key string, claim fence.Claim, c change) error {
	if err := errors.Join(claim.Check(), checkKey(key)); err != nil {
		return err
	}
	a := &attempt{rules: r, key: key, claim: claim, change: c}
	for {
		cur, err := r.look(ctx, key, c.reads)
		if err != nil {
			return a.or(err)
		}
		if cur.raw != nil && !c.adopts {
			return a.or(cur.rawErr)
		}
		if _, err := r.admit(cur.mark(key), claim); err != nil {
			return a.or(err)
		}
		next, err := c.next(cur)
		if err != nil {
			return a.or(err)
		}
		if next == nil {
			return nil
		}
		next.nonce = r.nonce()
		if done, err := a.send(ctx, cur, next); done {
			return err
		}
	}
}

// attempt is one call on its way.
type attempt struct {
	rules
	key    string
	claim  fence.Claim
	change change
	sent   int
	lost   error // of the PUT of the present frame whose answer was lost
}

// or is err, or, if a PUT may have been applied, that.
func (a *attempt) or(err error) error {
	if a.lost == nil {
		return err
	}
	unknown := &UnknownError{Key: a.key, Claim: a.claim, Err: a.lost}
	if refused := (*fence.RefusedError)(nil); errors.As(err, &refused) {
		unknown.Newer = refused.Newer
	}
	return unknown
}

// send sends next on the condition that the object is as cur, until it is known what became of it. It is not done if something else was
// written instead: then the caller looks again.
//
// No two writes have the same ETag, so cur's does not come back: once the object has another one, next can be applied no more.
func (a *attempt) send(ctx context.Context, cur state, next *frame) (done bool, _ error) {
	body := next.encode()
	for {
		if err := a.ready(ctx); err != nil {
			return true, a.or(err)
		}
		a.sent++
		err := a.bucket.PutIf(ctx, a.key, cur.etag, body)
		switch {
		case err == nil:
			return true, nil
		case errors.Is(err, ErrRejected):
			return true, a.or(rejected(a.change.op, a.key, err))
		case !errors.Is(err, ErrConflict):
			a.lost = err
		}
		now, err := a.look(ctx, a.key, false)
		switch {
		case err != nil:
			return true, a.or(err)
		case now.frame != nil && now.frame.nonce == next.nonce:
			return true, nil // this is it; the answer was lost, or somebody between repeated the request
		case now.etag == cur.etag:
			continue // not applied so far; if the lost one arrives yet, the same again is told that it has
		case a.lost == nil:
			return false, nil
		case a.below(now):
			a.lost = nil // the mark would not be below the claim's token, had it been applied
			return false, nil
		case a.change.repeats:
			a.lost = nil
			return false, nil
		}
		return true, a.or(a.refusal(now))
	}
}

// below reports whether the mark is one that the claim may still raise.
func (a *attempt) below(now state) bool {
	m := now.mark(a.key)
	return m.Authority == a.claim.Authority && m.Name == a.claim.Name && m.Token < a.claim.Token
}

// refusal is what the claim would be told now.
func (a *attempt) refusal(now state) error {
	_, err := a.admit(now.mark(a.key), a.claim)
	return err
}

// ready waits before an attempt that is not the first.
func (a *attempt) ready(ctx context.Context) error {
	if ctx.Err() != nil {
		return rejected(a.change.op, a.key, context.Cause(ctx))
	}
	if a.sent == 0 {
		return nil
	}
	if a.sent == maxAttempts {
		return rejected(a.change.op, a.key, ErrBusy)
	}
	timer := time.NewTimer(rand.N(min(waitBase<<min(a.sent-1, 16), waitLongest)))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return rejected(a.change.op, a.key, context.Cause(ctx))
	}
}
