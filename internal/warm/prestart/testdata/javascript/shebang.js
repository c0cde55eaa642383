#!/usr/bin/env node
'use strict';
console.log(this === module.exports, arguments.length, typeof arguments[1]);
