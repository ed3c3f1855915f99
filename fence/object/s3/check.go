package s3

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"sync"

	"github.com/minio/minio-go/v7"

	"github.com/tenure-go/tenure/fence/object"
)

// racers is how many PUTs a probe sends at a time of which one may be accepted.
const racers = 8

// Check makes sure that the store keeps the conditions of a PUT: by writes to one small object of its own, whose key begins with prefix, and by
// a race of 8 writes of which the store must accept one. It takes about 16 requests, and the right to write and read keys with that prefix; the object is
// deleted at the end, where the keys have that right too.
//
// It returns an [*UnsupportedError] that says what was seen, or the error of a store that was not reached or refused. nil is not a proof: a store
// that checks and then writes may win the race by luck.
func (b *Bucket) Check(ctx context.Context, prefix string) error {
	var chance [8]byte
	_, _ = rand.Read(chance[:]) // never fails: the documentation of crypto/rand
	p := probe{b: b, key: prefix + "tenure-check-" + hex.EncodeToString(chance[:])}
	err := p.run(ctx)
	// Without the right to delete, a few bytes stay behind. That is not what was asked.
	_ = b.client.RemoveObject(context.WithoutCancel(ctx), b.name, p.key, minio.RemoveObjectOptions{})
	return err
}

type probe struct {
	b   *Bucket
	key string
}

func (p *probe) run(ctx context.Context) error {
	const wrong = "0123456789abcdef0123456789abcdef"
	first, second := []byte("first"), []byte("second")
	if err := p.accepted(ctx, "If-None-Match: * for a new key", "", first); err != nil {
		return err
	}
	if err := p.refused(ctx, "If-None-Match: * for a key that is there", "", second); err != nil {
		return err
	}
	if err := p.refused(ctx, "If-Match with another ETag", wrong, second); err != nil {
		return err
	}
	etag, err := p.etag(ctx, first)
	if err != nil {
		return err
	}
	if err := p.accepted(ctx, "If-Match with the object's ETag", etag, second); err != nil {
		return err
	}
	if err := p.refused(ctx, "If-Match with the ETag before the last write", etag, first); err != nil {
		return err
	}
	if etag, err = p.etag(ctx, second); err != nil {
		return err
	}
	return p.race(ctx, etag)
}

func (p *probe) unsupported(sent, seen, want string) error {
	return &UnsupportedError{Store: p.b.String(), Sent: "PUT with " + sent, Seen: seen, Want: want}
}

func (p *probe) accepted(ctx context.Context, sent, etag string, body []byte) error {
	err := p.b.PutIf(ctx, p.key, etag, body)
	if errors.Is(err, object.ErrConflict) {
		return p.unsupported(sent, err.Error(), "200")
	}
	return p.failed(sent, err)
}

func (p *probe) refused(ctx context.Context, sent, etag string, body []byte) error {
	err := p.b.PutIf(ctx, p.key, etag, body)
	switch {
	case err == nil:
		return p.unsupported(sent, "200", "412")
	case errors.Is(err, object.ErrConflict):
		return nil
	}
	return p.failed(sent, err)
}

func (p *probe) failed(sent string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("s3: probing %s: PUT with %s: %w", p.b, sent, err)
}

// etag is that of the object, which must have the content that was written last.
func (p *probe) etag(ctx context.Context, want []byte) (string, error) {
	const limit = 64
	found, err := p.b.Get(ctx, p.key, limit)
	switch {
	case err != nil:
		return "", fmt.Errorf("s3: probing: %w", err)
	case string(found.Head) != string(want) || found.ETag == "":
		return "", &UnsupportedError{Store: p.b.String(), Sent: "GET after the PUT of " + fmt.Sprintf("%q", want),
			Seen: fmt.Sprintf("%q with the ETag %q", found.Head, found.ETag), Want: "what was written, and its ETag"}
	}
	return found.ETag, nil
}

// race sends writes under one condition at a time; after the first that is accepted it does not hold any more.
func (p *probe) race(ctx context.Context, etag string) error {
	var all sync.WaitGroup
	answers := make([]error, racers)
	for i := range racers {
		all.Go(func() { answers[i] = p.b.PutIf(ctx, p.key, etag, fmt.Appendf(nil, "racer %d", i)) })
	}
	all.Wait()
	won := 0
	for _, err := range answers {
		switch {
		case err == nil:
			won++
		case !errors.Is(err, object.ErrConflict):
			return p.failed("If-Match, several at a time", err)
		}
	}
	if won != 1 {
		return p.unsupported(fmt.Sprintf("the same If-Match, %d at a time,", racers), fmt.Sprintf("200 %d times", won), "200 once")
	}
	return nil
}
