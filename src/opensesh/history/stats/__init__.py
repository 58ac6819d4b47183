"""Tokens and money: what was spent, when, where and on what."""
