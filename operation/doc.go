// Package operation is durable outcome: what is known to have happened to a piece of work that has an effect elsewhere, such as a charge.
//
// An [Operation] has an identity of its caller's, and a fingerprint of its kind and request that is compared before anything else. Before an effect may leave, an [Attempt]
// is recorded, whose number is its fencing token. What becomes of it is an answer, or none: and then the operation is [Uncertain], never "not done". The rules in this
// package are pure: they say which state follows from what was learned, and a store applies them in one conditional write.
//
//   - A refusal proves nothing about another attempt: with one of them unknown the operation stays uncertain.
//   - A success decides an operation that is undecided, whoever reports it and however late. Against a decision it is a conflict: recorded, counted, and the decision stays.
//   - That nothing was observed decides nothing: a request in flight, or a worker stopped between its record and its send, can land after the look. Failed
//     follows from an inquiry only where the provider closed the key in the same step, or enforces an instant that every attempt carried and that has passed.
//   - Cancelling succeeds only while no attempt can have had an effect. Otherwise it is a wish.
//
// A worker's timeout protects its wait; the identity protects the effect.
package operation
