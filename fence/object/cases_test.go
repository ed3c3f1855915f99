package object_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/fence/object"
)

// cases are what must hold of the calls on a bucket. Each has a bucket of its own.
func cases() map[string]func(w world) error {
	return map[string]func(w world) error{
		"a holder writes many times":                   writesMany,
		"a stale put is refused":                       staleIsRefused,
		"a late put is refused after an enter":         lateAfterEnter,
		"a late put is refused when content came back": lateAfterReturn,
		"an equal enter is written":                    equalEnter,
		"a delete keeps the mark":                      deleteKeeps,
		"a lost answer is found out":                   lostIsFound,
		"a request that is sent twice is recognised":   sentTwice,
		"a ghost never lands":                          ghost,
		"overwritten and unknown is told":              unknownIsTold,
		"equal tokens lose nothing":                    equalTokens,
		"tokens never fall":                            tokensRise,
		"an update is applied once":                    appliedOnce,
		"foreign claims are refused":                   foreign,
	}
}

func writesMany(w world) error {
	c := w.plain()
	for _, content := range []string{"x", "y", "", "x"} {
		if err := errors.Join(c.Put(w.ctx, key, claim(1), []byte(content)), w.holds(content, 1)); err != nil {
			return err
		}
	}
	return errors.Join(c.Put(w.ctx, key, claim(3), []byte("z")), w.holds("z", 3))
}

func staleIsRefused(w world) error {
	c := w.plain()
	if err := errors.Join(c.Put(w.ctx, key, claim(1), []byte("a")), c.Put(w.ctx, key, claim(2), []byte("b"))); err != nil {
		return err
	}
	_, entered := c.Enter(w.ctx, key, claim(1))
	return errors.Join(
		refused(c.Put(w.ctx, key, claim(1), []byte("a")), 2),
		refused(c.Update(w.ctx, key, claim(1), appends("a")), 2),
		refused(c.Delete(w.ctx, key, claim(1)), 2),
		refused(entered, 2), w.holds("b", 2))
}

func lateAfterEnter(w world) error {
	c := w.plain()
	if err := c.Put(w.ctx, key, claim(1), []byte("x")); err != nil {
		return err
	}
	goOn, err := w.late(func(c object.Calls) error { return c.Put(w.ctx, key, claim(1), []byte("late")) })
	if err != nil {
		return err
	}
	read, err := c.Enter(w.ctx, key, claim(2))
	if err == nil && string(read) != "x" {
		err = fmt.Errorf("the successor read %q", read)
	}
	// What the successor writes now rests on what it read.
	return errors.Join(err, refused(goOn(), 2), w.holds("x", 2))
}

func lateAfterReturn(w world) error {
	c := w.plain()
	if err := c.Put(w.ctx, key, claim(1), []byte("x")); err != nil {
		return err
	}
	goOn, err := w.late(func(c object.Calls) error { return c.Update(w.ctx, key, claim(1), appends("late")) })
	if err != nil {
		return err
	}
	err = errors.Join(c.Put(w.ctx, key, claim(2), []byte("y")), c.Put(w.ctx, key, claim(2), []byte("x")))
	return errors.Join(err, refused(goOn(), 2), w.holds("x", 2))
}

func equalEnter(w world) error {
	c := w.plain()
	if err := c.Put(w.ctx, key, claim(1), []byte("x\n")); err != nil {
		return err
	}
	looks := 0
	goOn, err := w.late(func(c object.Calls) error {
		return c.Update(w.ctx, key, claim(1), func(old []byte) ([]byte, error) { looks++; return appends("late")(old) })
	})
	if err != nil {
		return err
	}
	_, err = c.Enter(w.ctx, key, claim(1))
	if err := errors.Join(err, goOn(), w.holds("x\nlate\n", 1)); err != nil {
		return err
	}
	if looks != 2 {
		return fmt.Errorf("the update looked %d times, want 2: somebody entered in between", looks)
	}
	return nil
}

func deleteKeeps(w world) error {
	c := w.plain()
	if err := errors.Join(c.Put(w.ctx, key, claim(2), []byte("x")), c.Delete(w.ctx, key, claim(2)), c.Delete(w.ctx, key, claim(2)),
		refused(c.Put(w.ctx, key, claim(1), []byte("late")), 2)); err != nil {
		return err
	}
	_, got := object.Get(w.ctx, w.bucket, key)
	read, entered := c.Enter(w.ctx, key, claim(2))
	if read != nil {
		return fmt.Errorf("entering what is deleted read %q", read)
	}
	return errors.Join(is(got, object.ErrAbsent), entered,
		c.Put(w.ctx, key, claim(2), []byte("y")), w.holds("y", 2))
}

// lostIsFound: the PUT is applied and its answer lost; the call finds that out, and so does a repeated one.
func lostIsFound(w world) error {
	for i, call := range []func(c object.Calls) error{
		func(c object.Calls) error { return c.Put(w.ctx, key, claim(1), []byte("x")) },
		func(c object.Calls) error { return c.Put(w.ctx, key, claim(1), []byte("y")) },
		func(c object.Calls) error { return c.Update(w.ctx, key, claim(1), appends("z")) },
		func(c object.Calls) error { return c.Delete(w.ctx, key, claim(1)) },
	} {
		b := &between{Bucket: w.bucket, put: once(func(_ context.Context, send func() error) error { return lost(send()) })}
		if err := call(w.on(b)); err != nil {
			return fmt.Errorf("call %d: %w", i, err)
		}
		if b.sent() != 1 {
			return fmt.Errorf("call %d sent %d PUTs", i, b.sent())
		}
	}
	// Not applied at all, and told as lost: it is sent again.
	b := &between{Bucket: w.bucket, put: once(func(context.Context, func() error) error { return errAnswerLost })}
	if err := errors.Join(w.on(b).Put(w.ctx, key, claim(1), []byte("again")), w.holds("again", 1)); err != nil {
		return err
	}
	// A call that is repeated after it was applied writes nothing.
	b = &between{Bucket: w.bucket}
	if err := w.on(b).Put(w.ctx, key, claim(1), []byte("again")); err != nil || b.sent() != 0 {
		return fmt.Errorf("the repeated call sent %d PUTs: %w", b.sent(), orNil(err))
	}
	return nil
}

// sentTwice: something between repeats the request, and hands on the second answer.
func sentTwice(w world) error {
	b := &between{Bucket: w.bucket, put: func(_ context.Context, send func() error) error {
		if err := send(); err != nil {
			return err
		}
		return send()
	}}
	c := w.on(b)
	return errors.Join(c.Put(w.ctx, key, claim(1), []byte("x")), c.Update(w.ctx, key, claim(1), appends("y")), w.holds("xy\n", 1))
}

// ghost: a PUT is held up on its way while its holder goes on, and arrives when the content is what it was before.
func ghost(w world) error {
	c := w.plain()
	if err := c.Put(w.ctx, key, claim(1), []byte("x")); err != nil {
		return err
	}
	var arrives func() error
	b := &between{Bucket: w.bucket}
	b.put = func(_ context.Context, send func() error) error {
		arrives = send
		return errAnswerLost
	}
	b.get = func(_ context.Context, read func() (object.Found, error)) (object.Found, error) {
		if b.sent() > 0 { // the store is out of the holder's reach from then on
			return object.Found{}, errAnswerLost
		}
		return read()
	}
	if err := is(w.on(b).Put(w.ctx, key, claim(1), []byte("ghost")), object.ErrUnknown); err != nil {
		return err
	}
	return errors.Join(c.Put(w.ctx, key, claim(1), []byte("y")), c.Put(w.ctx, key, claim(1), []byte("x")),
		is(arrives(), object.ErrConflict), w.holds("x", 1))
}

// unknownIsTold: the answer is lost, and somebody has written since.
func unknownIsTold(w world) error {
	for _, other := range []fence.Token{5, 6} {
		b := &between{Bucket: w.bucket, put: once(func(_ context.Context, send func() error) error {
			return errors.Join(send(), w.plain().Put(w.ctx, key, claim(other), []byte("other")), errAnswerLost)
		})}
		err := w.on(b).Put(w.ctx, key, claim(5), []byte("mine"))
		var unknown *object.UnknownError
		if !errors.As(err, &unknown) || errors.Is(err, fence.ErrRefused) || (unknown.Newer == 6) != (other == 6) || !errors.Is(err, errAnswerLost) {
			return fmt.Errorf("with token %d in between: %w", other, orNil(err))
		}
		if err := w.holds("other", other); err != nil {
			return err
		}
	}
	// A lower mark shows that it was not applied: it is made again.
	b := &between{Bucket: w.bucket, put: once(func(context.Context, func() error) error {
		return errors.Join(w.plain().Put(w.ctx, key, claim(6), []byte("lower")), errAnswerLost)
	})}
	return errors.Join(w.on(b).Put(w.ctx, key, claim(7), []byte("mine")), w.holds("mine", 7))
}

// equalTokens: many goroutines under one claim update one object.
func equalTokens(w world) error {
	const writers, each = 6, 8
	var all sync.WaitGroup
	failures := make([]error, writers)
	for i := range writers {
		all.Go(func() {
			for n := range each {
				failures[i] = errors.Join(failures[i], w.plain().Update(w.ctx, key, claim(1), appends(fmt.Sprint(i, "/", n))))
			}
		})
	}
	all.Wait()
	if err := errors.Join(failures...); err != nil {
		return err
	}
	lines, err := w.lines()
	if err == nil && len(lines) != writers*each {
		err = fmt.Errorf("%d updates were acknowledged, %d are there", writers*each, len(lines))
	}
	return err
}

func (w world) lines() (map[string]int, error) {
	got, err := object.Get(w.ctx, w.bucket, key)
	lines := map[string]int{}
	for _, line := range strings.Fields(string(got.Content)) {
		lines[line]++
	}
	return lines, err
}

// tokensRise: holders of several tokens write at the same time. By the object's own order no token follows a greater one.
func tokensRise(w world) error {
	const tokens, each = 4, 20
	var all sync.WaitGroup
	failures := make([]error, tokens+1)
	for token := fence.Token(1); token <= tokens; token++ {
		all.Go(func() {
			for n := range each {
				err := w.plain().Update(w.ctx, key, claim(token), appends(fmt.Sprint(token, "/", n)))
				if errors.Is(err, fence.ErrRefused) && token < tokens {
					return
				}
				failures[token] = errors.Join(failures[token], err)
			}
		})
	}
	all.Wait()
	got, err := object.Get(w.ctx, w.bucket, key)
	if err := errors.Join(errors.Join(failures...), err); err != nil {
		return err
	}
	highest := 0
	for _, line := range strings.Fields(string(got.Content)) {
		var token, n int
		if _, err := fmt.Sscanf(line, "%d/%d", &token, &n); err != nil {
			return err
		}
		if token < highest {
			return fmt.Errorf("token %d was accepted after %d: %q", token, highest, got.Content)
		}
		highest = token
	}
	if !strings.Contains(string(got.Content), fmt.Sprint(tokens, "/", each-1)) {
		return fmt.Errorf("the last update of the newest holder is not in %q", got.Content)
	}
	return nil
}

// appliedOnce: every third answer is lost, every fifth request too, and updates are applied at most once, those that were acknowledged exactly once.
func appliedOnce(w world) error {
	const writers, each = 4, 8
	var mu sync.Mutex
	n, acknowledged, unknown := 0, map[string]bool{}, map[string]bool{}
	b := &between{Bucket: w.bucket, put: func(_ context.Context, send func() error) error {
		mu.Lock()
		n++
		turn := n
		mu.Unlock()
		switch {
		case turn%5 == 0:
			return errAnswerLost
		case turn%3 == 0:
			return lost(send())
		}
		return send()
	}}
	var all sync.WaitGroup
	failures := make([]error, writers)
	for i := range writers {
		all.Go(func() {
			for n := range each {
				line := fmt.Sprint(i, "/", n)
				err := w.on(b).Update(w.ctx, key, claim(1), appends(line))
				mu.Lock()
				switch {
				case err == nil:
					acknowledged[line] = true
				case errors.Is(err, object.ErrUnknown):
					unknown[line] = true
				default:
					failures[i] = errors.Join(failures[i], err)
				}
				mu.Unlock()
			}
		})
	}
	all.Wait()
	lines, err := w.lines()
	if err := errors.Join(errors.Join(failures...), err); err != nil {
		return err
	}
	for line, times := range lines {
		if times != 1 || !acknowledged[line] && !unknown[line] {
			return fmt.Errorf("update %s is there %d times", line, times)
		}
	}
	for line := range acknowledged {
		if lines[line] != 1 {
			return fmt.Errorf("update %s was acknowledged and is not there", line)
		}
	}
	return nil
}

func foreign(w world) error {
	c := w.plain()
	if err := c.Put(w.ctx, key, claim(1), []byte("x")); err != nil {
		return err
	}
	name, authority := claim(9), claim(9)
	name.Name, authority.Authority = "orders/10", fence.ID{15: 2}
	return errors.Join(is(c.Put(w.ctx, key, name, nil), fence.ErrForeign), is(c.Put(w.ctx, key, authority, nil), fence.ErrForeign),
		is(c.Delete(w.ctx, key, name), fence.ErrForeign), is(c.Put(w.ctx, key, fence.Claim{}, nil), fence.ErrInvalid),
		is(c.Put(w.ctx, "", claim(9), nil), fence.ErrInvalid), w.holds("x", 1))
}
