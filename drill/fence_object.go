package drill

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"

	"github.com/tenure-go/tenure/drill/model"
	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/fence/object"
	"github.com/tenure-go/tenure/fence/object/s3"
)

// fenceObject plays pause with objects for a resource: the holder is stopped between the look at the object and the PUT.
func fenceObject(ctx context.Context, o Options, sc Scenario) (Report, error) {
	b, err := s3.Open(s3.Options{URL: o.S3})
	if err != nil {
		return Report{}, err
	}
	defer b.Close()
	if err := b.Check(ctx, objectPrefix); err != nil {
		return Report{}, err
	}
	o.HighWater = !o.Unfenced
	r, err := conduct(ctx, o, sc)
	if !o.Unfenced {
		r.Check = string(guardMark)
	}
	return r, err
}

// shown is the bucket without its keys, or an error matching ErrOption.
func shown(s3URL string) (string, error) {
	b, err := s3.Open(s3.Options{URL: s3URL})
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrOption, err)
	}
	defer b.Close()
	return b.String(), nil
}

// objectPrefix is what the keys of all drills begin with; run and round follow.
const objectPrefix = "tenure-drill/"

// objects are the values of a run's rounds, each in an object of its own. Log and answers are in the tables beside the store: an
// object can have no log that changes with it, so what the object holds in the end is the judge's to compare.
type objects struct {
	bucket *s3.Bucket
	before func(ctx context.Context) error // before the next PUT is sent; once
	plain  bool                            // PUTs without any condition, by a client of S3 alone
}

func openObjects(url string) (*objects, error) {
	b, err := s3.Open(s3.Options{URL: url})
	return &objects{bucket: b}, err
}

// PutIf is the bucket's, with what is to happen before. It is for object.Put.
func (o *objects) PutIf(ctx context.Context, key, etag string, body []byte) error {
	if err := o.stop(ctx); err != nil {
		return fmt.Errorf("%w: %w", object.ErrRejected, err)
	}
	return o.bucket.PutIf(ctx, key, etag, body)
}

// Get is the bucket's.
func (o *objects) Get(ctx context.Context, key string, limit int64) (object.Found, error) {
	return o.bucket.Get(ctx, key, limit)
}

func (o *objects) stop(ctx context.Context) error {
	if stop := o.before; stop != nil {
		o.before = nil
		return stop(ctx)
	}
	return nil
}

// put writes what w says, under its claim or without a look at it.
func (o *objects) put(ctx context.Context, key string, w writing, content []byte) error {
	if !o.plain {
		return object.Put(ctx, o, key, w.claim, content)
	}
	if err := o.stop(ctx); err != nil {
		return err
	}
	client, bucket := o.bucket.Client()
	_, err := client.PutObject(ctx, bucket, key, bytes.NewReader(content), int64(len(content)), minio.PutObjectOptions{})
	return err
}

// read returns what an object holds, whoever wrote it. A claim enters first, if there is one.
func (o *objects) read(ctx context.Context, key string, claim *fence.Claim) ([]string, error) {
	var text []byte
	var err error
	if claim != nil {
		text, err = object.Enter(ctx, o, key, *claim)
	} else {
		var got object.Object
		got, err = object.Get(ctx, o, key)
		text = got.Content
		if errors.Is(err, object.ErrFormat) { // a plain PUT
			var found object.Found
			found, err = o.Get(ctx, key, maxLine)
			text = found.Head
		}
	}
	if errors.Is(err, object.ErrAbsent) || err == nil && text == nil {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var content []string
	err = json.Unmarshal(text, &content)
	return content, err
}

// writeObject writes to the round's object, logs what was accepted, and records the answer. The log is a step of its own: it has the order of the
// writes because a round's processes act one after the other.
func (r *resource) writeObject(ctx context.Context, w writing, fenced bool) (model.Answer, error) {
	content, err := json.Marshal(append(append([]string{}, w.base...), w.element))
	if err != nil {
		return model.Answer{}, err
	}
	r.objects.plain = !fenced
	err = r.objects.put(ctx, nameOf(r.run, w.round), w, content)
	if err == nil {
		err = r.exec(ctx, `INSERT INTO [log] (round, writer, element, token, content) VALUES (?1, ?2, ?3, ?4, ?5)`,
			w.round, w.writer, w.element, int64(w.claim.Token), string(content))
	}
	return r.answered(ctx, w, err)
}

// keys are the objects under a prefix: at most maxHistory.
func (o *objects) keys(ctx context.Context, prefix string) ([]string, error) {
	ctx, cancel := context.WithCancel(ctx) // ends the listing that is not read to its end
	defer cancel()
	client, bucket := o.bucket.Client()
	var keys []string
	for found := range client.ListObjects(ctx, bucket, minio.ListObjectsOptions{Prefix: prefix, Recursive: true}) {
		if found.Err != nil {
			return keys, found.Err
		}
		if len(keys) == maxHistory {
			break
		}
		keys = append(keys, found.Key)
	}
	return keys, nil
}

// content reads the objects of all rounds of a run.
func (o *objects) content(ctx context.Context, run string) (map[int][]string, error) {
	keys, err := o.keys(ctx, namesOf(run))
	if err != nil {
		return nil, err
	}
	all := map[int][]string{}
	for _, key := range keys {
		round, err := strconv.Atoi(strings.TrimPrefix(key, namesOf(run)))
		if err != nil {
			return nil, fmt.Errorf("the object %q is of no round: %w", key, err)
		}
		if all[round], err = o.read(ctx, key, nil); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// remove deletes the objects under a prefix for which old is true, marks and all.
func (o *objects) remove(ctx context.Context, prefix string, old func(key string) bool) error {
	keys, err := o.keys(ctx, prefix)
	client, bucket := o.bucket.Client()
	for _, key := range keys {
		if old(key) {
			err = errors.Join(err, client.RemoveObject(ctx, bucket, key, minio.RemoveObjectOptions{}))
		}
	}
	return err
}

// left reports whether a key is of a run that began long ago and was killed before it could remove it.
func left(key string, now time.Time) bool {
	run, _, _ := strings.Cut(strings.TrimPrefix(key, objectPrefix), "/")
	const digits = 8 // of a run's id, which say when it began
	if len(run) != 2*digits {
		return false
	}
	began, err := strconv.ParseUint(run[:digits], 16, 32)
	return err == nil && now.Sub(time.Unix(int64(began), 0)) > leftAfter
}

// pauseInObject has the late write stop this process after its look at the object, when the PUT is about to be sent. The last check of the
// lease is made there too.
func (w *worker) pauseInObject(ctx context.Context, c command) (reply, error) {
	stopped := false
	w.res.objects.before = func(ctx context.Context) error {
		stopped = true
		return w.stopOutsideWrites(ctx)
	}
	c.Late = true
	r, err := w.write(ctx, c)
	if err == nil && !stopped {
		err = fmt.Errorf("%w: it sent no PUT to stop before", ErrProcess)
	}
	return r, err
}

// readObject reads the round's object; where marks are checked it enters first.
func (w *worker) readObject(ctx context.Context) (reply, error) {
	var claim *fence.Claim
	if w.allow != nil && w.claim.Token > 0 {
		claim = &w.claim
	}
	content, err := w.res.objects.read(ctx, nameOf(w.Run, w.Round), claim)
	w.content = content
	return reply{Content: content}, err
}
