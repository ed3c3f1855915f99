// Package operationhttp lets an endpoint of your own be called again without doing its work again: the Idempotency-Key header of
// https://datatracker.ietf.org/doc/draft-ietf-httpapi-idempotency-key-header/ (revision 07), kept in a store of operations.
//
//   - The first request under a key runs the handler, as an attempt that was recorded before. Its answer is recorded before it is sent, and every later request under the key gets that answer, with the
//     header Idempotency-Replayed: true. A caller that gives up waiting ends nothing: it asks again.
//   - Another request (method, path, query, content type or body) under a known key is 422, also while the first is in progress; the same one, while the first is in progress, is 409 with Retry-After.
//   - What a handler did that did not return an answer (a panic, a crash, a lost database, a status of 500) is unknown. Such a key is 409 until it is known: evidence, an inquiry or an operator
//     says what happened ([operation.Store], tenure op). A handler that may safely run again under the same key says so with [Options.Window].
//   - A handler whose effect is in the database of the operations gets both in one step: it completes its attempt in its own transaction ([Attempt], [Stored]).
//
// A key belongs to a caller: [Options.Scope] says whose it is, from credentials and never from what the caller says of itself, or one caller would be shown another's answers.
package operationhttp
