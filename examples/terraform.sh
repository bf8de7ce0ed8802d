#!/bin/sh
# One `terraform apply` at a time for a state that has no lock of its own. dlock passes Ctrl-C on, so that terraform can
# write its state; --kill-after gives it the time for that. Run it in the directory of the configuration.
exec dlock run -b "${DLOCK_BACKEND:-redis://locks/}" -k "terraform-${TF_WORKSPACE:-default}" -w 15m --ttl 2m --kill-after 50s \
    --reason "${1:-apply}" -- terraform apply -input=false -auto-approve
