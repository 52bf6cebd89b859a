"""Webhooks: messages that others post to an HTTP endpoint, and messages that are posted to others."""

from streambench.system.webhook.factory import WebhookSystemFactory

__all__ = ["WebhookSystemFactory"]
