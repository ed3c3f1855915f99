// Package payments is a charge done right: a small program around a payment provider that times out, loses answers and answers late. docs/payments.md quotes and explains it.
//
//   - [Charges] and [Refunds] are the two kinds of operation, and their types are the shape of all evidence.
//   - [Client] speaks to the provider by net/http, and says of each failure what is known of it.
//   - [Terms] is what the provider promises, and from that alone follows how the handlers may ask again and what an inquiry may conclude.
//   - [Webhook] records what the provider says later.
//   - [Run] works and reconciles; [RefundOf] and [Withdraw] are what a shop does afterwards; [Tell] is what it shows meanwhile.
//
// The provider's API is that of internal/flakypay, which misbehaves on purpose. Its ledger judges the whole in TestAudit.
package payments
